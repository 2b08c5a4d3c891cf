// WantedRows: the rows of a pass whose results are asked for, and the pass as they see it. The last layer makes keys
// and values of all rows, and everything else of these alone.
#pragma once
#include <span>
#include <vector>

#include "weft/autograd/ops/paged_cache.h"
#include "weft/nn/pass.h"

namespace weft {

class WantedRows {
 public:
  WantedRows() = default;
  WantedRows(const WantedRows&) = delete;
  WantedRows& operator=(const WantedRows&) = delete;

  // rows: rising, at least one. The pass is over a paged cache that no ranks share, forward only; what it points to
  // outlives the choice. Memory is kept for the next one.
  void choose(const Pass& pass, std::span<const int32_t> rows);

  // Num_tokens and everything that is said of rows is of these; keys go where those of the whole pass go.
  const Pass& pass() const { return pass_; }
  // These of x[T, ...].
  Var of(const Var& x) const;

 private:
  struct Run {
    int32_t begin, end;
  };
  template <class Range>
  void each_meeting(std::span<const Range> ranges, auto&& bounds, auto&& visit) const;
  void choose_sequences(const PagedPlan& all);
  void choose_adapters(const RowAdapters& all);

  std::vector<Run> runs_;  // of rows that stand one behind the other
  std::vector<int32_t> positions_;
  std::vector<PagedSequence> sequences_;
  std::vector<RowAdapters::Run> adapted_;
  PagedPlan paged_;
  RowAdapters adapters_;
  Pass pass_;
};

}  // namespace weft
