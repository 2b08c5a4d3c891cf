// spans_of: packed sequences, as starts of query and key rows, to the spans of an AttentionShape.
#pragma once
#include <cstdint>
#include <vector>

#include "weft/kernels/kernels.h"

namespace weft {

inline std::vector<AttentionSpan> spans_of(const std::vector<int32_t>& q_start, const std::vector<int32_t>& k_start,
                                           bool causal, int64_t first_query = 0) {
  std::vector<AttentionSpan> spans;
  for (size_t i = 0; i + 1 < q_start.size(); ++i) {
    spans.push_back({.q_begin = q_start[i],
                     .q_end = q_start[i + 1],
                     .k_begin = k_start[i],
                     .k_end = k_start[i + 1],
                     .causal = causal,
                     .first_query = first_query + q_start[i]});
  }
  return spans;
}

}  // namespace weft
