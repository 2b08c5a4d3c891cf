// AttentionChunks: intersections of rows and chunks.
#include "weft/autograd/attention_chunks.h"

#include <algorithm>

namespace weft {

std::span<const AttentionSpan> AttentionChunks::cut(std::span<const AttentionSpan> spans, int chunk) {
  spans_.clear();
  for (const AttentionSpan& s : spans) {
    const int64_t first_key = s.first_key, end_key = first_key + s.k_end - s.k_begin;
    const int64_t end = end_key + s.lead, begin = end - (s.q_end - s.q_begin);  // positions of queries
    for (int64_t from = begin, to = from; from < end; from = to) {
      const int64_t chunk_begin = from / chunk * chunk;
      to = std::min(end, chunk_begin + chunk);
      // Where the span is causal, its last query stands at its last key.
      const int64_t keys_from = std::max(first_key, chunk_begin), keys_to = std::min(end_key, to);
      if (keys_from >= keys_to) continue;
      AttentionSpan part = s;
      part.q_begin = int32_t(s.q_begin + from - begin), part.q_end = int32_t(s.q_begin + to - begin);
      part.k_begin = int32_t(s.k_begin + keys_from - first_key),
      part.k_end = int32_t(s.k_begin + keys_to - first_key);
      part.first_query = s.first_query + from - begin;
      part.first_key = int32_t(keys_from);
      part.lead = int32_t(to - keys_to);
      spans_.push_back(part);
    }
  }
  return spans_;
}

std::span<const PagedSequence> AttentionChunks::cut(std::span<const PagedSequence> sequences, int chunk,
                                                    int64_t block_tokens) {
  check(chunk % block_tokens == 0, "chunks of {} tokens are cut by blocks of {}", chunk, block_tokens);
  sequences_.clear();
  for (const PagedSequence& s : sequences) {
    const int64_t end = s.num_keys, begin = end - (s.q_end - s.q_begin);
    for (int64_t from = begin, to = from; from < end; from = to) {
      const int64_t chunk_begin = from / chunk * chunk;
      to = std::min(end, chunk_begin + chunk);
      sequences_.push_back({.q_begin = int32_t(s.q_begin + from - begin),
                            .q_end = int32_t(s.q_begin + to - begin),
                            .num_keys = int32_t(to - chunk_begin),
                            .blocks = s.blocks + chunk_begin / block_tokens});
    }
  }
  return sequences_;
}

}  // namespace weft
