// Route: counting sorts of copies by expert, where they leave and where they arrive.
#include "weft/parallel/expert/route.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace weft {

void Route::begin(int64_t num_tokens, int64_t k, int64_t num_experts, std::span<const TokenSpan> spans,
                  int64_t seq_len) {
  k_ = k, num_experts_ = num_experts, num_rows_ = 1, drops_ = false;
  experts_.resize(size_t(num_tokens * k)), copies_.resize(experts_.size()), rows_.resize(size_t(num_tokens));
  spans_.clear();
  if (spans.empty() || seq_len == 0) {
    std::ranges::fill(rows_, 0);
    return spans_.push_back({0, num_tokens, 0, 0});
  }
  const int64_t first_row = spans.front().first_token / seq_len;
  for (const TokenSpan& s : spans)
    for (int64_t done = 0; done < s.count;) {
      const int64_t token = s.first_token + done, row = token / seq_len - first_row;
      const int64_t count = std::min(s.count - done, seq_len - token % seq_len);
      spans_.push_back({s.begin + done, count, row, token});
      std::fill_n(rows_.begin() + s.begin + done, count, int32_t(row));
      num_rows_ = std::max(num_rows_, row + 1);
      done += count;
    }
}

void Route::drop_beyond(Context& context, double capacity_factor, Communicator* group) {
  // What each rank tells the others of each of its spans: its row + 1, or 0 for none; its first token; how often it
  // chose each expert.
  constexpr int64_t kMostSpans = 2;  // of a row on one rank: its two chunks
  const int64_t size = group ? group->size() : 1, entry = 2 + num_experts_, entries = kMostSpans * num_rows_;
  check(int64_t(spans_.size()) <= entries, "{} runs of tokens in {} rows", spans_.size(), num_rows_);
  const Tensor all = context.stream.host_memory().empty(DType::i64, {size, entries * entry});
  const Tensor mine = all.slice_rows(group ? group->rank() : 0, 1);
  const bool has_data = context.stream.allocator().device() != Device::meta;
  if (has_data) {
    std::fill_n(mine.data<int64_t>(), entries * entry, 0);
    for (size_t i = 0; i < spans_.size(); ++i) {
      int64_t* const out = mine.data<int64_t>() + int64_t(i) * entry;
      out[0] = spans_[i].row + 1, out[1] = spans_[i].first_token;
      count_choices(spans_[i], out + 2);
    }
  }
  if (group) group->all_gather(all, mine);
  if (!has_data) return;  // as many rows as without a capacity: what is held at most
  drops_ = true;
  for (const Span& span : spans_) {
    taken_.assign(size_t(num_experts_), 0);
    int64_t choices = 0;  // of the whole row
    for (const int64_t* other = all.data<int64_t>(); other < all.data<int64_t>() + size * entries * entry;
         other += entry) {
      if (other[0] != span.row + 1) continue;
      choices += std::accumulate(other + 2, other + entry, int64_t(0));
      for (int64_t e = 0; other[1] < span.first_token && e < num_experts_; ++e) taken_[size_t(e)] += other[2 + e];
    }
    const auto room = int64_t(std::ceil(capacity_factor * double(choices) / double(num_experts_) - 1e-9));
    for (int64_t i = span.begin * k_; i < (span.begin + span.count) * k_; ++i)
      copies_[size_t(i)] = taken_[size_t(experts_[size_t(i)])]++ < room ? 0 : -1;
  }
}

void Route::count_choices(const Span& span, int64_t* counts) const {
  for (int64_t i = span.begin * k_; i < (span.begin + span.count) * k_; ++i) ++counts[experts_[size_t(i)]];
}

// As `assign` would count where experts follow each other; of the rows it is told only how many they are.
void Route::assign_evenly() {
  const int64_t copies = int64_t(copies_.size());
  counts_.assign(size_t(num_experts_), copies / num_experts_);
  for (int64_t e = 0; e < copies % num_experts_; ++e) ++counts_[size_t(e)];
  tokens_.resize(copies_.size());
}

void Route::assign() {
  counts_.assign(size_t(num_experts_), 0);
  const auto is_dropped = [&](size_t copy) { return drops_ && copies_[copy] < 0; };
  for (size_t i = 0; i < experts_.size(); ++i) counts_[size_t(experts_[i])] += !is_dropped(i);
  next_.resize(size_t(num_experts_));
  std::exclusive_scan(counts_.begin(), counts_.end(), next_.begin(), int64_t(0));
  tokens_.resize(size_t(std::reduce(counts_.begin(), counts_.end())));
  for (size_t i = 0; i < experts_.size(); ++i) {
    if (is_dropped(i)) continue;
    const int64_t row = next_[size_t(experts_[i])]++;
    copies_[i] = int32_t(row);
    tokens_[size_t(row)] = int32_t(i / size_t(k_));
  }
}

void Route::add_choices(std::span<int64_t> counts) const {
  if (tokens_.size() == experts_.size())  // which are counted
    for (size_t e = 0; e < counts.size(); ++e) counts[e] += counts_[e];
  else
    each_choice([&](int32_t, int32_t expert) { ++counts[size_t(expert)]; });
}

void Route::keep_on_device(Tensor chosen) {
  chosen_ = std::move(chosen);
  std::iota(copies_.begin(), copies_.end(), 0);
  tokens_.resize(copies_.size());
  for (size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = int32_t(i / size_t(k_));
}

void Route::order_on_device(Context& context, Tensor chosen) {
  const int64_t copies = chosen.numel();
  chosen_ = std::move(chosen);
  at_ = context.empty(DType::i32, chosen_.shape()), ordered_tokens_ = context.empty(DType::i32, {copies});
  runs_ = context.empty(DType::i32, {copies, 3});
  context.kernels.order_by_group(
      context.stream,
      {.at = at_, .tokens = ordered_tokens_, .runs = runs_, .chosen = chosen_, .groups = num_experts_});
  tokens_.resize(size_t(copies));  // which are not told
}

void Route::settle(Context& context) {
  if (!is_on_device()) return;
  std::memcpy(experts_.data(), late_.wait(), chosen_.bytes());
  leave_device();
  assign();
  exchange(context, nullptr);
}

RowCopies Route::copies() const {
  if (runs_) return {.at = static_cast<const int32_t*>(at_.raw()), .k = k_, .is_on_device = true};
  return {.at = copies_.data(), .k = k_};
}

TableRows Route::tokens() const {
  if (!runs_) return tokens_.data();
  TableRows rows(static_cast<const int32_t*>(ordered_tokens_.raw()));
  rows.is_on_device = true;
  return rows;
}

void Route::exchange(Context& context, Communicator* group) {
  const int size = group ? group->size() : 1;
  const int64_t here = even_cut(num_experts_, group ? group->rank() : 0, size).count;
  sent_.clear(), received_.clear();  // of a pass before that had a group
  const bool has_data = context.stream.allocator().device() != Device::meta;
  if (size == 1) return order_by_expert(counts_, has_data);
  sent_.assign(size_t(size), 0), received_.assign(size_t(size), 0);
  next_.resize(size_t(size));  // experts of each rank
  for (int r = 0; r < size; ++r) {
    const Cut cut = even_cut(num_experts_, r, size);
    next_[size_t(r)] = cut.count;
    for (int64_t e = cut.begin; e < cut.begin + cut.count; ++e) sent_[size_t(r)] += counts_[size_t(e)];
  }
  Allocator& host = context.stream.host_memory();
  const Tensor mine = host.empty(DType::i64, {num_experts_}), arriving = host.empty(DType::i64, {size * here});
  taken_.assign(size_t(size * here), 0);
  row_tokens_.assign(size_t(size), here);  // what each rank tells this one
  if (has_data) std::copy(counts_.begin(), counts_.end(), mine.data<int64_t>());
  group->all_to_all(arriving, row_tokens_, mine, next_);
  // Without data every rank sends what this one does.
  const int64_t first = even_cut(num_experts_, group->rank(), size).begin;
  const double load = std::min(context.expert_load, double(size));
  const auto assumed = [&](int64_t expert) { return int64_t(std::llround(double(counts_[size_t(expert)]) * load)); };
  for (int64_t i = 0; i < size * here; ++i) {
    taken_[size_t(i)] = has_data ? arriving.data<int64_t>()[i] : assumed(first + i % here);
    received_[size_t(i / here)] += taken_[size_t(i)];
  }
  order_by_expert(taken_, has_data);
}

void Route::carry(Context& context, Communicator* group, std::span<const int32_t> of_tokens,
                  std::vector<int32_t>& of_rows) const {
  of_rows.resize(size_t(num_here()));
  if (!group) {
    for (size_t i = 0; i < of_rows.size(); ++i) of_rows[i] = of_tokens[size_t(tokens_[i])];
    return;
  }
  Allocator& host = context.stream.host_memory();
  const Tensor leaving = host.empty(DType::i64, {int64_t(tokens_.size())}),
               here = host.empty(DType::i64, {num_here()});
  for (size_t i = 0; i < tokens_.size(); ++i) leaving.data<int64_t>()[i] = of_tokens[size_t(tokens_[i])];
  group->all_to_all(here, received_, leaving, sent_);
  for (size_t i = 0; i < of_rows.size(); ++i) of_rows[i] = int32_t(here.data<int64_t>()[arrived_[i]]);
}

// counts: [ranks, experts here], of received rows.
void Route::order_by_expert(std::span<const int64_t> counts, bool has_data) {
  const size_t ranks = std::max<size_t>(received_.size(), 1), here = counts.size() / ranks;
  starts_.assign(here + 1, 0);
  for (size_t e = 0; e < here; ++e) {
    starts_[e + 1] = starts_[e];
    for (size_t r = 0; r < ranks; ++r) starts_[e + 1] += counts[r * here + e];
  }
  if (received_.empty()) return;
  next_.assign(starts_.begin(), starts_.end());
  arrived_.resize(size_t(starts_.back())), places_.resize(size_t(starts_.back()));
  if (!has_data) return;
  int32_t row = 0;
  for (size_t i = 0; i < counts.size(); ++i)
    for (int64_t n = 0; n < counts[i]; ++n, ++row) {
      const int64_t place = next_[i % here]++;
      arrived_[size_t(place)] = row, places_[size_t(row)] = int32_t(place);
    }
}

}  // namespace weft
