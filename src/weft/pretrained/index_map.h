// IndexMap: where the rows, or the columns, of a parameter lie among those of a stored tensor, which may hold other
// parameters too.
#pragma once
#include <cstdint>

namespace weft {

// How the elements that rotary positions turn lie in a stored tensor: the two of each pair side by side; in halves,
// the first elements of all pairs before the second ones, as weft has them; or the second ones before the first.
enum class Turned : uint8_t { pairs, halves, swapped };

// Default-made, row i is row i. With `run`, rows come in runs of so many (a head's, say). `runs` of them are a group,
// in which each begins `step` rows behind the one before; groups begin at multiples of `stride`.
struct IndexMap {
  int64_t first = 0;             // stored row of row 0
  int64_t total = 0;             // rows of the stored tensor; 0: as many as the parameter has
  int64_t run = 0;               // 0: all rows are one run
  int64_t runs = 1, stride = 0;  // with `run`
  int64_t step = 0;              // 0: those of a group lie together
  // The first `turned` rows of each run are the two halves of the pairs that rotary positions turn. In the stored
  // tensor they lie so, behind `turned_at` others.
  int64_t turned_at = 0, turned = 0;
  Turned lie = Turned::pairs;

  bool keeps_order() const { return run == 0; }

  int64_t operator()(int64_t row) const {
    if (run == 0) return first + row;
    const int64_t index = row / run;
    return first + index / runs * stride + index % runs * (step > 0 ? step : run) + inside(row % run);
  }

 private:
  int64_t inside(int64_t i) const {
    const int64_t half = turned / 2;
    if (i >= turned) return i - turned < turned_at ? i - turned : i;
    const bool is_first = i < half;
    if (lie == Turned::pairs) return turned_at + (is_first ? 2 * i : 2 * (i - half) + 1);
    return turned_at + (lie == Turned::halves ? i : is_first ? i + half : i - half);
  }
};

}  // namespace weft
