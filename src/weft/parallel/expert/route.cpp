// Route: counting sorts of copies by expert, where they leave and where they arrive.
#include "weft/parallel/expert/route.h"

#include <cmath>
#include <numeric>

namespace weft {

void Route::begin(int64_t num_tokens, int64_t k, int64_t num_experts, std::span<const TokenSpan> spans,
                  int64_t seq_len) {
  k_ = k, num_experts_ = num_experts, num_rows_ = 1;
  experts_.resize(size_t(num_tokens * k));
  rows_.assign(size_t(num_tokens), 0);
  if (spans.empty() || seq_len == 0) return;
  const int64_t first_row = spans.front().first_token / seq_len;
  for (const TokenSpan& s : spans)
    for (int64_t i = 0; i < s.count; ++i) {
      const int64_t row = (s.first_token + i) / seq_len - first_row;
      rows_[size_t(s.begin + i)] = int32_t(row);
      num_rows_ = std::max(num_rows_, row + 1);
    }
}

// Marks the copies that find no room; returns how many do.
int64_t Route::drop_beyond(double capacity_factor) {
  row_tokens_.assign(size_t(num_rows_), 0);
  for (const int32_t row : rows_) ++row_tokens_[size_t(row)];
  taken_.assign(size_t(num_rows_ * num_experts_), 0);
  int64_t kept = 0;
  for (size_t i = 0; i < experts_.size(); ++i) {
    const auto row = size_t(rows_[i / size_t(k_)]);
    const double room = capacity_factor * double(row_tokens_[row] * k_) / double(num_experts_);
    int64_t& taken = taken_[row * size_t(num_experts_) + size_t(experts_[i])];
    const bool fits = taken < int64_t(std::ceil(room - 1e-9));
    copies_[i] = fits ? 0 : -1;
    taken += fits, kept += fits;
  }
  return kept;
}

void Route::assign(double capacity_factor) {
  copies_.assign(experts_.size(), 0);
  const int64_t kept = capacity_factor > 0 ? drop_beyond(capacity_factor) : int64_t(experts_.size());
  counts_.assign(size_t(num_experts_), 0);
  for (size_t i = 0; i < experts_.size(); ++i) counts_[size_t(experts_[i])] += copies_[i] == 0;
  next_.resize(size_t(num_experts_));
  std::exclusive_scan(counts_.begin(), counts_.end(), next_.begin(), int64_t(0));
  tokens_.resize(size_t(kept));
  for (size_t i = 0; i < experts_.size(); ++i) {
    if (copies_[i] < 0) continue;
    const int64_t row = next_[size_t(experts_[i])]++;
    copies_[i] = int32_t(row);
    tokens_[size_t(row)] = int32_t(i / size_t(k_));
  }
}

void Route::exchange(Context& context, Communicator* group) {
  const int size = group ? group->size() : 1;
  const int64_t here = even_cut(num_experts_, group ? group->rank() : 0, size).count;
  if (size == 1) return order_by_expert(counts_);
  sent_.assign(size_t(size), 0), received_.assign(size_t(size), 0);
  next_.resize(size_t(size));  // experts of each rank
  for (int r = 0; r < size; ++r) {
    const Cut cut = even_cut(num_experts_, r, size);
    next_[size_t(r)] = cut.count;
    for (int64_t e = cut.begin; e < cut.begin + cut.count; ++e) sent_[size_t(r)] += counts_[size_t(e)];
  }
  const Tensor mine = context.empty(DType::i64, {num_experts_}), arriving = context.empty(DType::i64, {size * here});
  taken_.assign(size_t(size * here), 0);
  row_tokens_.assign(size_t(size), here);  // what each rank tells this one
  const bool has_data = mine.device() != Device::meta;
  if (has_data) std::copy(counts_.begin(), counts_.end(), mine.data<int64_t>());
  group->all_to_all(arriving, row_tokens_, mine, next_);
  // Without data every rank sends what this one does.
  const int64_t first = even_cut(num_experts_, group->rank(), size).begin;
  for (int64_t i = 0; i < size * here; ++i) {
    taken_[size_t(i)] = has_data ? arriving.data<int64_t>()[i] : counts_[size_t(first + i % here)];
    received_[size_t(i / here)] += taken_[size_t(i)];
  }
  order_by_expert(taken_);
}

// counts: [ranks, experts here], of received rows.
void Route::order_by_expert(std::span<const int64_t> counts) {
  const size_t ranks = std::max<size_t>(received_.size(), 1), here = counts.size() / ranks;
  starts_.assign(here + 1, 0);
  for (size_t e = 0; e < here; ++e) {
    starts_[e + 1] = starts_[e];
    for (size_t r = 0; r < ranks; ++r) starts_[e + 1] += counts[r * here + e];
  }
  if (received_.empty()) return;
  next_.assign(starts_.begin(), starts_.end());
  arrived_.resize(size_t(starts_.back())), places_.resize(size_t(starts_.back()));
  int32_t row = 0;
  for (size_t i = 0; i < counts.size(); ++i)
    for (int64_t n = 0; n < counts[i]; ++n, ++row) {
      const int64_t place = next_[i % here]++;
      arrived_[size_t(place)] = row, places_[size_t(row)] = int32_t(place);
    }
}

}  // namespace weft
