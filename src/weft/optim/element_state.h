// ElementState: a number for every element that this rank owns of some parameters.
#pragma once
#include <string_view>
#include <vector>

#include "weft/optim/optimizer.h"

namespace weft {

// Which parameters something is for: a function of the name and the whole shape, so that all ranks agree.
using IsMeant = bool (*)(std::string_view param, const Shape& whole);
inline bool every_param(std::string_view, const Shape&) { return true; }
inline bool no_param(std::string_view, const Shape&) { return false; }

inline bool is_meant(const Param& param, IsMeant which) { return which(param.name, param.placement.whole); }

class ElementState {
 public:
  // Zeros, in f32 (f64 beside f64).
  ElementState(Context& context, std::span<const Owned> owned, IsMeant which = every_param);

  // Of owned[i].pieces[j]: [count]; empty where nothing is kept of the parameter.
  const Tensor& of(size_t i, size_t j) const { return parts_[i][j]; }

  // Of elements of bucket i from `begin` of its masters on, zeros where no piece is: only of every_param, of which
  // all of it lies as the masters do.
  Tensor of_run(size_t i, int64_t begin, int64_t count) const { return wholes_[i].slice_flat(begin, {count}); }

  void visit(std::span<const Owned> owned, std::string_view param, bool is_written,
             Optimizer::VisitState visit) const;

 private:
  std::vector<std::vector<Tensor>> parts_;
  std::vector<Tensor> wholes_;  // of each bucket; empty where nothing is kept
};

}  // namespace weft
