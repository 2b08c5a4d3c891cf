// WholeTensors: a model's tensors as one rank would have them, put together from the pieces of all ranks, and back.
#pragma once
#include <string>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/parallel/data/bucket.h"
#include "weft/parallel/mesh.h"
#include "weft/train/recipe.h"

namespace weft {

class WholeTensors {
 public:
  struct Info {
    std::string name;
    Shape shape;
    bool is_trained = true;
    bool is_nf4 = false;
  };
  // What the ranks own (Optimizer::owned) of a recipe's model. Everything outlives this.
  WholeTensors(const Recipe& recipe, const Mesh& mesh, std::span<const Owned> owned);

  // Every parameter of the model, in the order of use, whatever this rank has of it.
  const std::vector<Info>& all() const { return all_; }

  // parts: flat tensors laid out as owned()[i]. Returns the whole tensor (f32) on every rank; valid until the next
  // call. Collective, in the same order on all ranks.
  Tensor gather(const Info& info, std::span<const Tensor> parts);
  // Takes this rank's pieces out of a whole tensor.
  void scatter(const Info& info, const float* whole, std::span<const Tensor> parts) const;

  // The same for any tensor of which ranks have runs: each_run calls its argument as Optimizer::VisitState is called.
  using EachRun = FunctionRef<void(FunctionRef<void(const Tensor& here, int64_t first, bool is_counted)>)>;
  Tensor gather(const Shape& shape, EachRun each_run);
  static void scatter(const float* whole, EachRun each_run);

 private:
  // Of `parts`, the runs that belong to a parameter.
  void visit(const std::string& name, Access access, std::span<const Tensor> parts,
             FunctionRef<void(const Tensor& here, int64_t first, bool is_counted)> visit) const;

  const Mesh& mesh_;
  std::span<const Owned> owned_;
  std::vector<Info> all_;
  Allocator memory_;  // not part of the training's figures
  Tensor whole_;
};

// The gradients of `owned` on the host, f32, as `parts` above.
std::vector<Tensor> gradients_of(Context& context, std::span<const Owned> owned);

}  // namespace weft
