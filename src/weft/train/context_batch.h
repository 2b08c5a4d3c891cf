// Context batches: a rank's part of a micro-batch whose tokens are spread over a context-parallel group.
#pragma once
#include "weft/data/batch.h"
#include "weft/nn/pass.h"

namespace weft {

// The tokens of `whole` that the layout gives to its rank, in the layout's order; storage of `part` is kept. Its
// sequence_starts stay empty: a document may end on another rank, so ContextPlan::build takes those of `whole`.
void take_part(const Batch& whole, const ContextLayout& layout, Batch& part);

// The forward pass over a part. All arguments outlive the pass.
inline Pass pass_of(const Batch& part, const ContextPlan& plan, ContextParallel& parallel) {
  return {.ids = part.ids.data(),
          .num_tokens = plan.layout().num_tokens(),
          .seq_len = plan.layout().seq_len(),
          .attention = {.positions = part.positions.data()},
          .context_plan = &plan,
          .context_parallel = &parallel};
}

}  // namespace weft
