// ContextLayout: which tokens of a micro-batch each rank of a context-parallel group holds.
#pragma once
#include <array>
#include <vector>

#include "weft/autograd/ops/dropout.h"

namespace weft {

// Every row of seq_len tokens is cut into 2 * size chunks, and rank r holds chunks r and 2 * size - 1 - r: with
// causal attention all ranks then see as many pairs. A rank's part holds, row by row, its lower chunk and then its
// upper one. One rank holds everything, in order. Source: Zhu, "zigzag ring attention", 2024.
class ContextLayout {
 public:
  ContextLayout(int64_t rows, int64_t seq_len, int rank, int size);

  // Whether rows of seq_len tokens can be cut for `size` ranks.
  static bool divides(int64_t seq_len, int size) { return size == 1 || seq_len % (2 * int64_t(size)) == 0; }

  int64_t rows() const { return rows_; }
  int64_t seq_len() const { return seq_len_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  int64_t row_tokens() const { return seq_len_ / size_; }      // of a row, on each rank
  int64_t num_tokens() const { return rows_ * row_tokens(); }  // on each rank
  int64_t num_all_tokens() const { return rows_ * seq_len_; }

  // What a rank holds of one row, in order; tokens are counted inside the row. One run where its chunks touch.
  struct RowSpans {
    std::array<TokenSpan, 2> spans;
    int count = 0;
    const TokenSpan* begin() const { return spans.data(); }
    const TokenSpan* end() const { return spans.data() + count; }
    const TokenSpan& operator[](int i) const { return spans[size_t(i)]; }
  };
  RowSpans row_spans(int rank) const;

  // Runs of this rank's tokens that follow each other among all rows * seq_len tokens.
  const std::vector<TokenSpan>& token_spans() const { return token_spans_; }
  // The index of every token of this rank among all.
  std::vector<int64_t> tokens() const;

  // Calls body(span) for the runs of any rank, tokens counted among all.
  template <class Body>
  void for_each_span(int rank, Body&& body) const {
    const RowSpans row = row_spans(rank);
    for (int64_t r = 0; r < rows_; ++r) {
      for (const TokenSpan& span : row) {
        body(TokenSpan{r * row_tokens() + span.begin, span.count, r * seq_len_ + span.first_token});
      }
    }
  }

 private:
  int64_t rows_, seq_len_;
  int rank_, size_;
  std::vector<TokenSpan> token_spans_;
};

}  // namespace weft
