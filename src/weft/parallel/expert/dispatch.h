// Dispatch and combine: rows of tokens to the ranks of their experts, and back; each is the other's backward.
#pragma once
#include "weft/autograd/tape.h"
#include "weft/parallel/expert/route.h"

namespace weft {

// x[T, H] -> rows [rows here, H] ordered by expert, times their weights [T, k] where there are such. The group is
// null where this rank has all experts.
struct DispatchOp {
  static constexpr std::string_view kName = "dispatch";
  static constexpr bool kAlwaysBackward = true;
  Communicator* group;
  RouteRef route;
  Shape shape = {};  // of x
  DType dtype = {};
  Tensor weights = {}, weighed = {};  // the latter is x

  Tensor forward(Context& context, const Tensor& x, const Tensor& w);
  std::array<Tensor, 2> backward(Context& context, const Tensor& dy);
};

// rows of the experts [rows here, H], weights [T, k] -> the weighted sum of each token's, [T, H]; without weights
// their sum
struct CombineOp {
  static constexpr std::string_view kName = "combine";
  static constexpr bool kAlwaysBackward = true;
  Communicator* group;
  RouteRef route;
  Tensor returned = {}, weights = {};

  Tensor forward(Context& context, const Tensor& rows, const Tensor& w);
  std::array<Tensor, 2> backward(Context& context, const Tensor& dy);
};

}  // namespace weft
