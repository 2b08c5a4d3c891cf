// TextRows: a span of attention for each text.
#include "weft/models/text_rows.h"

#include <algorithm>

namespace weft {

void TextRows::add(std::span<const int32_t> ids, int64_t second_text) {
  const auto begin = int32_t(ids_.size()), count = int32_t(ids.size()), end = begin + count;
  const auto text = int32_t(firsts_.size());
  firsts_.push_back(begin);
  spans_.push_back({.q_begin = begin, .q_end = end, .k_begin = begin, .k_end = end, .causal = false});
  if (reach_ > 0) add_local_spans(spans_.back());
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  for (int32_t i = 0; i < count; ++i) {
    positions_.push_back(int32_t(first_position_) + i);
    kinds_.push_back(tells_apart_ && second_text > 0 && i >= second_text ? 1 : 0);
    texts_.push_back(text);
  }
}

// A row that has `reach` tokens behind it is taken for the last of them, from where the window leaves as many before
// the row; the last rows see all that is behind them, and their window is moved as far.
void TextRows::add_local_spans(const AttentionSpan& text) {
  const int32_t reach = int32_t(std::min<int64_t>(reach_, text.q_end - text.q_begin)), cut = text.q_end - reach;
  if (text.q_begin < cut) {
    local_spans_.push_back(text);
    local_spans_.back().q_end = cut, local_spans_.back().causal = true;
  }
  local_spans_.push_back(text);
  AttentionSpan& last = local_spans_.back();
  last.q_begin = cut, last.k_begin = std::max(text.k_begin, cut - reach), last.lead = int32_t(reach_);
}

Pass TextRows::pass_of(const std::vector<AttentionSpan>& spans) const {
  return {.ids = ids_.data(),
          .num_tokens = num_rows(),
          .attention = {.positions = positions_.data(), .spans = spans.data(), .num_spans = int(spans.size())}};
}

}  // namespace weft
