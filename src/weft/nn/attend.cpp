// attend: the choice between one rank and several.
#include "weft/nn/attend.h"

#include "weft/parallel/context/spread_attention.h"

namespace weft {

Var attend(const AttentionLayer& layer, const Pass& pass, const Var& q, const Var& k, const Var& v,
           const AttentionSinks& sinks, const KeySelection& selection) {
  if (const PagedPlan* const paged = pass.attention.paged; paged && paged->spread)
    return {spread_attention(*q.context, *paged, layer.number, layer.rule, sinks, q.value, k.value, v.value),
            q.context};
  const DropoutKey dropout = pass.dropout_key(layer.dropout, layer.dropout_site);
  if (!pass.context_plan)
    return apply(*q.context,
                 AttentionOp{.plan = pass.attention,
                             .layer = layer.number,
                             .rule = layer.rule,
                             .dropout = dropout,
                             .sinks = sinks,
                             .selection = selection},
                 q, k, v);
  return context_attention(q, k, v,
                           {.parallel = *pass.context_parallel,
                            .plan = *pass.context_plan,
                            .rule = layer.rule,
                            .dropout = dropout,
                            .sinks = sinks});
}

}  // namespace weft
