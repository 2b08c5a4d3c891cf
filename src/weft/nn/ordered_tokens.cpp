// OrderedTokens: heads in place of tokens, and states out of caches.
#include "weft/nn/ordered_tokens.h"

#include <algorithm>

#include "weft/autograd/ops/reshape.h"
#include "weft/parallel/context/head_exchange.h"

namespace weft {

OrderedTokens::OrderedTokens(const Pass& pass, int64_t heads)
    : pass_(&pass), heads_(heads), count_(heads), tokens_(pass.num_tokens) {
  if (!pass.context_plan) return;
  const ContextLayout& layout = pass.context_plan->layout();
  const HeadShare mine = HeadShare::of(heads, heads, layout.rank(), layout.size());
  first_ = mine.first_head, count_ = mine.num_heads, tokens_ = layout.num_all_tokens();
}

Var OrderedTokens::gathered(const Var& x) const {
  if (!pass_->context_plan) return x;
  const int64_t width = x.value.dim(1) / std::max<int64_t>(heads_, 1);
  const Var heads = apply(*x.context, TokensToHeadsOp{call()}, reshape(x, {pass_->num_tokens, heads_, width}));
  return reshape(heads, {tokens_, count_ * width});
}

Var OrderedTokens::scattered(const Var& y, int64_t width) const {
  if (!pass_->context_plan) return y;
  const Var rows =
      apply(*y.context, HeadsToTokensOp{.call = call(), .heads = heads_}, reshape(y, {tokens_, count_, width}));
  return reshape(rows, {pass_->num_tokens, heads_ * width});
}

Recurrence OrderedTokens::past(Context& context, int layer, int which, DType dtype, Shape state) const {
  if (pass_->context_plan) return {pass_->context_plan->runs()};
  const PagedPlan* const paged = pass_->attention.paged;
  KvCache* const own = pass_->attention.cache;
  if (!paged && !own) return {pass_->runs};
  check(!paged || !paged->spread, "layers that hand on a state do not serve with their tokens spread over ranks");
  Tensor& states = paged ? paged->cache->state(layer, which) : own->state(layer, which);
  if (paged) state[0] = paged->cache->num_states();
  if (!states) states = context.empty(dtype, state);
  return {paged ? pass_->runs : own->run(pass_->num_tokens), states};
}

}  // namespace weft
