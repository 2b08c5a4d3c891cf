// AttentionChunks: what calls of attention are told where a row sees no key of another chunk of its sequence.
#pragma once
#include <span>
#include <vector>

#include "weft/kernels/kernels.h"

namespace weft {

// A chunk is so many positions of a sequence, from its first on. What either call gives is host memory, valid until
// the next one of its kind; in the steady state nothing is allocated.
class AttentionChunks {
 public:
  // Each span as one to a chunk: the chunk's queries and those keys of the span that lie in it.
  std::span<const AttentionSpan> cut(std::span<const AttentionSpan> spans, int chunk);
  // The same of sequences whose keys lie in blocks, of which `block_tokens` each divide a chunk.
  std::span<const PagedSequence> cut(std::span<const PagedSequence> sequences, int chunk, int64_t block_tokens);

 private:
  std::vector<AttentionSpan> spans_;
  std::vector<PagedSequence> sequences_;
};

}  // namespace weft
