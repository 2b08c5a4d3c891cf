// pass_of: the forward pass over a batch of rows.
#pragma once
#include "weft/data/batch.h"
#include "weft/nn/pass.h"

namespace weft {

// The batch outlives the pass.
inline Pass pass_of(const Batch& batch) {
  return {.ids = batch.ids.data(),
          .num_tokens = int64_t(batch.rows) * batch.seq_len,
          .seq_len = batch.seq_len,
          .attention = {.positions = batch.positions.data(),
                        .sequence_start = batch.sequence_starts.data(),
                        .num_sequences = int(batch.sequence_starts.size()) - 1}};
}

}  // namespace weft
