// sequence_parts: where spans of tokens and sequences meet.
#include "weft/train/sequence_parts.h"

#include <algorithm>

namespace weft {

std::vector<SequencePart> sequence_parts(const MicroBatches::Slot& slot, int64_t seq_len,
                                         std::span<const SequenceAt> sequences) {
  const int64_t first = slot.first_row * seq_len;
  std::vector<SequencePart> parts;
  for (const TokenSpan& span : slot.tokens) {
    const int64_t begin = span.first_token - first, end = begin + span.count;
    auto at = std::ranges::upper_bound(sequences, begin, {}, [](const SequenceAt& s) { return s.begin + s.count; });
    for (; at != sequences.end() && at->begin < end; ++at) {
      const int64_t from = std::max(at->begin, begin), to = std::min(at->begin + at->count, end);
      if (from < to)
        parts.push_back({.sequence = at - sequences.begin(), .begin = span.begin + from - begin, .count = to - from});
    }
  }
  return parts;
}

}  // namespace weft
