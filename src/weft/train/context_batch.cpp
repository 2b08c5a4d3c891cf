// Context batches: the copy of a part.
#include "weft/train/context_batch.h"

#include <algorithm>

namespace weft {

void take_part(const Batch& whole, const ContextLayout& layout, Batch& part) {
  check(whole.rows == layout.rows() && whole.seq_len == layout.seq_len(),
        "the layout is for {} rows of {} tokens, the batch has {} of {}", layout.rows(), layout.seq_len(), whole.rows,
        whole.seq_len);
  part.reset(whole.rows, int32_t(layout.row_tokens()));
  const bool looks_further = !whole.next_ids.empty();
  if (looks_further) part.next_ids.resize(part.ids.size()), part.further_targets.resize(part.ids.size());
  for (const TokenSpan& span : layout.token_spans()) {
    const auto copy = [&](const std::vector<int32_t>& from, std::vector<int32_t>& to) {
      std::copy_n(from.begin() + span.first_token, span.count, to.begin() + span.begin);
    };
    copy(whole.ids, part.ids), copy(whole.targets, part.targets), copy(whole.positions, part.positions);
    if (looks_further) copy(whole.next_ids, part.next_ids), copy(whole.further_targets, part.further_targets);
  }
  part.num_targets = std::count_if(part.targets.begin(), part.targets.end(), [](int32_t t) { return t >= 0; });
}

}  // namespace weft
