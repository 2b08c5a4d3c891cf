// TextRows: a span of attention for each text.
#include "weft/models/text_rows.h"

namespace weft {

void TextRows::add(std::span<const int32_t> ids, int64_t second_text) {
  const auto begin = int32_t(ids_.size()), count = int32_t(ids.size()), end = begin + count;
  firsts_.push_back(begin);
  spans_.push_back({.q_begin = begin, .q_end = end, .k_begin = begin, .k_end = end, .causal = false});
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  for (int32_t i = 0; i < count; ++i) {
    positions_.push_back(int32_t(first_position_) + i);
    kinds_.push_back(tells_apart_ && second_text > 0 && i >= second_text ? 1 : 0);
  }
}

Pass TextRows::pass() const {
  return {.num_tokens = num_rows(), .attention = {.spans = spans_.data(), .num_spans = int(spans_.size())}};
}

}  // namespace weft
