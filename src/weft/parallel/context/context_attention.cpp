// Context attention: the choice of the way.
#include "weft/parallel/context/context_attention.h"

#include "weft/parallel/context/gathered_attention.h"
#include "weft/parallel/context/ring_attention.h"
#include "weft/parallel/context/ulysses_attention.h"

namespace weft {

Var context_attention(const Var& q, const Var& k, const Var& v, const ContextCall& call) {
  const ContextLayout& layout = call.plan.layout();
  const Communicator& group = call.parallel.group;
  check(layout.size() == group.size() && layout.rank() == group.rank(),
        "the layout is that of rank {} of {}, the group has rank {} of {}", layout.rank(), layout.size(),
        group.rank(), group.size());
  check(q.value.dim(0) == layout.num_tokens(), "the layout holds {} tokens, q is {}", layout.num_tokens(),
        q.value.shape());
  switch (call.parallel.mode) {
    case ContextMode::ring: return apply(*q.context, RingAttentionOp{call}, q, k, v);
    case ContextMode::ulysses: return apply(*q.context, UlyssesAttentionOp{call}, q, k, v);
    case ContextMode::allgather: return apply(*q.context, GatheredAttentionOp{call}, q, k, v);
  }
  return {};
}

}  // namespace weft
