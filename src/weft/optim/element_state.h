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
  // Zeros, in the masters' dtype.
  ElementState(Context& context, std::span<const Owned> owned, IsMeant which = every_param);

  // Of owned[i].pieces[j]: [count]; empty where nothing is kept of the parameter.
  const Tensor& of(size_t i, size_t j) const { return parts_[i][j]; }

  void visit(std::span<const Owned> owned, std::string_view param, bool is_written,
             Optimizer::VisitState visit) const;

 private:
  std::vector<std::vector<Tensor>> parts_;
};

}  // namespace weft
