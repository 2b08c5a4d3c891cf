// ContextPlan: intersections of chunks and documents.
#include "weft/parallel/context/context_plan.h"

#include <algorithm>

namespace weft {

ContextPlan::ContextPlan(ContextLayout layout) : layout_(std::move(layout)) {
  // Only the first step may have as many spans as tokens: a document that reaches into another rank's chunk fills all
  // of what is between.
  const size_t rows = size_t(layout_.rows()), size = size_t(layout_.size()), tokens = size_t(layout_.num_tokens());
  ring_.reserve(tokens + 4 * rows * size);
  gathered_.reserve(tokens);
  whole_.reserve(size_t(layout_.num_all_tokens()));
  ring_begin_.reserve(size * kMaxParts + 1);
}

// Calls body(piece) for every run of this rank's tokens that lies in one sequence, in order.
template <class Body>
void ContextPlan::for_each_piece(std::span<const int32_t> starts, Body&& body) const {
  layout_.for_each_span(layout_.rank(), [&](const TokenSpan& span) {
    const int64_t end = span.first_token + span.count;
    auto next = std::upper_bound(starts.begin(), starts.end(), span.first_token);
    for (int64_t token = span.first_token; token < end; ++next) {
      if (*next <= token) continue;  // an empty sequence
      const int64_t until = std::min<int64_t>(end, *next);
      body(Piece{token, until, *(next - 1), *next, span.begin + token - span.first_token});
      token = until;
    }
  });
}

void ContextPlan::build(std::span<const int32_t> sequence_starts, int64_t first_token) {
  check(
      !sequence_starts.empty() && sequence_starts.front() == 0 && sequence_starts.back() == layout_.num_all_tokens(),
      "the sequences do not cover the {} tokens of the micro-batch", layout_.num_all_tokens());
  fill_causal_spans(whole_, sequence_starts, first_token);
  fill_token_runs(runs_, sequence_starts);
  gathered_.clear();
  for_each_piece(sequence_starts, [&](const Piece& q) {
    gathered_.push_back({.q_begin = int32_t(q.local),
                         .q_end = int32_t(q.local + q.end - q.begin),
                         .k_begin = int32_t(q.sequence_begin),
                         .k_end = int32_t(q.end),
                         .causal = true,
                         .first_query = first_token + q.begin,
                         .first_key = 0});
  });
  ring_.clear();
  ring_begin_.assign(1, 0);
  for (int step = 0; step < layout_.size(); ++step) {
    const int owner = (layout_.rank() - step + layout_.size()) % layout_.size();
    for (int part = 0; part < kMaxParts; ++part) {
      if (part < layout_.row_spans(owner).count) build_ring_part(owner, part, sequence_starts, first_token);
      ring_begin_.push_back(ring_.size());
    }
  }
}

// Chunks of two ranks are the same or do not meet, hence keys are all before a piece of queries, or the same tokens,
// or behind it and unseen.
void ContextPlan::build_ring_part(int owner, int part, std::span<const int32_t> starts, int64_t first_token) {
  const TokenSpan keys_of_row = layout_.row_spans(owner)[part];
  for_each_piece(starts, [&](const Piece& q) {
    const int64_t row = q.begin / layout_.seq_len();
    const int64_t chunk = row * layout_.seq_len() + keys_of_row.first_token;
    const int64_t begin = std::max(chunk, q.sequence_begin);
    const int64_t end = std::min(chunk + keys_of_row.count, q.sequence_end);
    const bool is_same = begin == q.begin && end == q.end;
    if (begin >= end || (!is_same && end > q.begin)) return;
    const int64_t local = row * layout_.row_tokens() + keys_of_row.begin + begin - chunk;
    ring_.push_back({.q_begin = int32_t(q.local),
                     .q_end = int32_t(q.local + q.end - q.begin),
                     .k_begin = int32_t(local),
                     .k_end = int32_t(local + end - begin),
                     .causal = is_same,
                     .first_query = first_token + q.begin,
                     .first_key = int32_t(begin - q.sequence_begin),
                     .lead = int32_t(q.end - end)});
  });
}

}  // namespace weft
