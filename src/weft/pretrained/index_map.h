// IndexMap: where the rows, or the columns, of a parameter lie among those of a stored tensor, which may hold other
// parameters too.
#pragma once
#include <cstdint>

namespace weft {

// Default-made, row i is row i. With `run`, rows come in runs of so many (a head's, say). `runs` of them are a group,
// in which each begins `step` rows behind the one before; groups begin at multiples of `stride`.
struct IndexMap {
  int64_t first = 0;             // stored row of row 0
  int64_t total = 0;             // rows of the stored tensor; 0: as many as the parameter has
  int64_t run = 0;               // 0: all rows are one run
  int64_t runs = 1, stride = 0;  // with `run`
  int64_t step = 0;              // 0: those of a group lie together
  // The first `turned` rows of each run are the two halves of the pairs that rotary positions turn. In the stored
  // tensor they lie pair by pair, or with `keeps_halves` as here, behind `turned_at` others.
  int64_t turned_at = 0, turned = 0;
  bool keeps_halves = false;

  bool keeps_order() const { return run == 0; }

  int64_t operator()(int64_t row) const {
    if (run == 0) return first + row;
    const int64_t index = row / run;
    return first + index / runs * stride + index % runs * (step > 0 ? step : run) + inside(row % run);
  }

 private:
  int64_t inside(int64_t i) const {
    const int64_t half = turned / 2;
    if (i < turned) return turned_at + (keeps_halves ? i : i < half ? 2 * i : 2 * (i - half) + 1);
    return i - turned < turned_at ? i - turned : i;
  }
};

}  // namespace weft
