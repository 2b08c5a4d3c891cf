// ContextPlan: who attends to what, for one micro-batch that is spread over the ranks of a context-parallel group.
#pragma once
#include <span>

#include "weft/autograd/ops/attention.h"
#include "weft/parallel/context/context_layout.h"

namespace weft {

// Built anew for every micro-batch; the storage is kept. Must outlive the tape.
class ContextPlan {
 public:
  explicit ContextPlan(ContextLayout layout);

  // The whole micro-batch as one sequence a row, or cut into documents: [sequences + 1] starts among its rows *
  // seq_len tokens, among them the start of every row. first_token is the index of its token 0 among all of the step.
  void build(std::span<const int32_t> sequence_starts, int64_t first_token);

  const ContextLayout& layout() const { return layout_; }

  // Ring: this rank's queries and the keys of rank (rank - step) mod size, which visit in this step. The keys of one
  // row that do not follow each other come in parts, since a span's keys do.
  static constexpr int kMaxParts = 2;
  std::span<const AttentionSpan> ring(int step, int part) const {
    const size_t i = size_t(step) * kMaxParts + size_t(part);
    return std::span(ring_).subspan(ring_begin_[i], ring_begin_[i + 1] - ring_begin_[i]);
  }
  // This rank's queries and the keys of all ranks in the order of their tokens.
  std::span<const AttentionSpan> gathered() const { return gathered_; }
  // All queries and keys in the order of their tokens.
  std::span<const AttentionSpan> whole() const { return whole_; }
  TokenRuns runs() const { return {runs_.data(), int(runs_.size())}; }  // the same, for layers with a state

 private:
  struct Piece {
    int64_t begin, end, sequence_begin, sequence_end;  // all tokens
    int64_t local;                                     // where it begins on this rank
  };
  template <class Body>
  void for_each_piece(std::span<const int32_t> starts, Body&& body) const;
  void build_ring_part(int owner, int part, std::span<const int32_t> starts, int64_t first_token);

  ContextLayout layout_;
  std::vector<AttentionSpan> ring_, gathered_, whole_;
  std::vector<TokenRun> runs_;
  std::vector<size_t> ring_begin_;  // [size * kMaxParts + 1]
};

}  // namespace weft
