// sequence_parts: which tokens of sequences a rank has.
#pragma once
#include <span>
#include <vector>

#include "weft/parallel/token_loss.h"
#include "weft/train/micro_batches.h"

namespace weft {

// A sequence among the tokens of a micro-batch's rows.
struct SequenceAt {
  int64_t begin, count;
};
// What of the sequences, which are in order, is among the slot's tokens.
std::vector<SequencePart> sequence_parts(const MicroBatches::Slot& slot, int64_t seq_len,
                                         std::span<const SequenceAt> sequences);

}  // namespace weft
