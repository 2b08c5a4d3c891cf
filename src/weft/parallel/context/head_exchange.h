// HeadExchange: ops that trade this rank's tokens of all heads for all tokens of some heads, and back: for layers
// that read a sequence in its order.
#pragma once
#include "weft/parallel/context/head_trade.h"

namespace weft {

// x[T here, heads, D] -> [all T, heads here, D], in the order of tokens; a rank may have no heads.
struct TokensToHeadsOp {
  static constexpr std::string_view kName = "tokens_to_heads";
  static constexpr bool kAlwaysBackward = true;
  ContextCall call;
  DType dtype = {};
  Shape here = {}, there = {};  // of x, and of what comes of it

  Tensor forward(Context& context, const Tensor& x);
  Tensor backward(Context& context, const Tensor& dy);
};

// The other way.
struct HeadsToTokensOp {
  static constexpr std::string_view kName = "heads_to_tokens";
  static constexpr bool kAlwaysBackward = true;
  ContextCall call;
  int64_t heads = 0;  // of all ranks
  DType dtype = {};
  Shape here = {}, there = {};

  Tensor forward(Context& context, const Tensor& x);
  Tensor backward(Context& context, const Tensor& dy);
};

}  // namespace weft
