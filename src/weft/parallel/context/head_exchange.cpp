// HeadExchange: a trade of one tensor, whose heads share no keys.
#include "weft/parallel/context/head_exchange.h"

#include "weft/parallel/gradient_or_zeros.h"

namespace weft {
namespace {

Tensor to_heads(Context& context, const ContextCall& call, const Tensor& tokens) {
  const HeadTrade trade(call, tokens.dim(1), tokens.dim(1));
  const Tensor heads = trade.to_heads(context, {tokens}, false)[0][0];
  return heads ? heads : context.empty(tokens.dtype(), {call.plan.layout().num_all_tokens(), 0, tokens.dim(2)});
}

Tensor to_tokens(Context& context, const ContextCall& call, const Tensor& heads, int64_t num_heads) {
  HeadTrade::Runs runs;
  runs[0][0] = heads;
  return HeadTrade(call, num_heads, num_heads).to_tokens(context, runs, false, heads.dtype(), heads.dim(2))[0];
}

}  // namespace

Tensor TokensToHeadsOp::forward(Context& context, const Tensor& x) {
  Tensor y = to_heads(context, call, x);
  dtype = x.dtype(), here = x.shape(), there = y.shape();
  return y;
}

Tensor TokensToHeadsOp::backward(Context& context, const Tensor& dy) {
  return to_tokens(context, call, gradient_or_zeros(context, dy, dtype, there), here[1]);
}

Tensor HeadsToTokensOp::forward(Context& context, const Tensor& x) {
  Tensor y = to_tokens(context, call, x, heads);
  dtype = x.dtype(), here = x.shape(), there = y.shape();
  return y;
}

Tensor HeadsToTokensOp::backward(Context& context, const Tensor& dy) {
  return to_heads(context, call, gradient_or_zeros(context, dy, dtype, there));
}

}  // namespace weft
