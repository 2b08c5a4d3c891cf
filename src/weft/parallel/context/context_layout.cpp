// ContextLayout: the zigzag cut.
#include "weft/parallel/context/context_layout.h"

namespace weft {

ContextLayout::ContextLayout(int64_t rows, int64_t seq_len, int rank, int size)
    : rows_(rows), seq_len_(seq_len), rank_(rank), size_(size) {
  check(rows >= 0 && seq_len > 0 && size > 0 && rank >= 0 && rank < size, "{} rows of {} tokens for rank {} of {}",
        rows, seq_len, rank, size);
  check(divides(seq_len, size), "rows of {} tokens cannot be cut into the {} chunks of {} ranks", seq_len, 2 * size,
        size);
  for_each_span(rank, [&](const TokenSpan& span) {
    TokenSpan* const last = token_spans_.empty() ? nullptr : &token_spans_.back();
    if (last && last->first_token + last->count == span.first_token) {
      last->count += span.count;
    } else {
      token_spans_.push_back(span);
    }
  });
}

ContextLayout::RowSpans ContextLayout::row_spans(int rank) const {
  if (size_ == 1) return {{TokenSpan{0, seq_len_, 0}}, 1};
  const int64_t chunk = seq_len_ / (2 * int64_t(size_)), low = rank * chunk, high = (2 * size_ - 1 - rank) * chunk;
  if (low + chunk == high) return {{TokenSpan{0, 2 * chunk, low}}, 1};
  return {{TokenSpan{0, chunk, low}, TokenSpan{chunk, chunk, high}}, 2};
}

std::vector<int64_t> ContextLayout::tokens() const {
  std::vector<int64_t> all;
  for (const TokenSpan& span : token_spans_) {
    for (int64_t i = 0; i < span.count; ++i) all.push_back(span.first_token + i);
  }
  return all;
}

}  // namespace weft
