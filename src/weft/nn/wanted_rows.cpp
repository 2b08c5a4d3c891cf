// WantedRows: what each run of rows is of the pass's sequences and adapters.
#include "weft/nn/wanted_rows.h"

#include <algorithm>

namespace weft {

void WantedRows::choose(const Pass& pass, std::span<const int32_t> rows) {
  check(!rows.empty() && pass.attention.paged && !pass.attention.paged->spread && !pass.is_training,
        "rows are chosen of a pass over a paged cache that no ranks share");
  runs_.clear(), positions_.clear();
  for (const int32_t row : rows) {
    if (runs_.empty() || runs_.back().end != row) runs_.push_back({row, row});
    runs_.back().end = row + 1;
    positions_.push_back(pass.attention.positions[row]);
  }
  pass_ = pass;
  pass_.ids = nullptr, pass_.num_tokens = int64_t(rows.size()), pass_.wanted = nullptr;
  pass_.attention.positions = positions_.data();
  choose_sequences(*pass.attention.paged);
  pass_.attention.paged = &paged_;
  if (!pass.lora) return;
  choose_adapters(*pass.lora);
  pass_.lora = &adapters_;
}

// Where runs of chosen rows and `ranges` of all rows, both ascending, meet: begin and end in the pass, and the first
// of these rows among the chosen ones.
template <class Range>
void WantedRows::each_meeting(std::span<const Range> ranges, auto&& bounds, auto&& visit) const {
  int32_t at = 0;
  size_t first = 0;  // that ends behind the run's begin
  for (const Run& run : runs_) {
    while (first < ranges.size() && bounds(ranges[first]).end <= run.begin) ++first;
    for (size_t i = first; i < ranges.size() && bounds(ranges[i]).begin < run.end; ++i) {
      const auto [range_begin, range_end] = bounds(ranges[i]);
      const int32_t begin = std::max(run.begin, range_begin), end = std::min(run.end, range_end);
      visit(ranges[i], Run{begin, end}, at + begin - run.begin);
    }
    at += run.end - run.begin;
  }
}

// Some rows of a sequence are a sequence that ends with the last of them.
void WantedRows::choose_sequences(const PagedPlan& all) {
  sequences_.clear();
  each_meeting(
      std::span(all.sequences, size_t(all.num_sequences)),
      [](const PagedSequence& s) {
        return Run{s.q_begin, s.q_end};
      },
      [&](const PagedSequence& s, const Run& met, int32_t first) {
        sequences_.push_back({.q_begin = first,
                              .q_end = first + met.end - met.begin,
                              .num_keys = s.num_keys - (s.q_end - met.end),
                              .blocks = s.blocks});
      });
  paged_ = all;
  paged_.sequences = sequences_.data(), paged_.num_sequences = int(sequences_.size());
}

void WantedRows::choose_adapters(const RowAdapters& all) {
  adapted_.clear();
  each_meeting(
      all.runs,
      [](const RowAdapters::Run& a) {
        return Run{int32_t(a.begin), int32_t(a.begin + a.count)};
      },
      [&](const RowAdapters::Run& a, const Run& met, int32_t first) {
        adapted_.push_back({a.set, first, met.end - met.begin});
      });
  adapters_ = {adapted_, all.sets};
}

Var WantedRows::of(const Var& x) const {
  const Tensor& all = x.value;
  if (runs_.size() == 1) return {all.slice_rows(runs_[0].begin, pass_.num_tokens), x.context};
  Shape shape = all.shape();
  shape[0] = pass_.num_tokens;
  const Tensor y = x.context->empty(all.dtype(), shape);
  int64_t at = 0;
  for (const Run& run : runs_) {
    const int64_t count = run.end - run.begin;
    x.context->stream.copy(y.slice_rows(at, count), all.slice_rows(run.begin, count));
    at += count;
  }
  return {y, x.context};
}

}  // namespace weft
