// Placement: which part of a weight a rank holds, and what that says about its gradient.
#pragma once
#include <algorithm>
#include <array>

#include "weft/tensor/shape.h"

namespace weft {

// `count` neighbours of `total`, from `begin`.
struct Cut {
  int64_t begin = 0, count = 0, total = 0;
  bool is_whole() const { return count == total; }
};

// The elements of `units`, each of which has `size`: of heads, say.
inline Cut elements_of(const Cut& units, int64_t size) {
  return {units.begin * size, units.count * size, units.total * size};
}

// The part of `total` that belongs to `part` of `parts`: sizes differ by at most one, the larger ones come first.
inline Cut even_cut(int64_t total, int part, int parts) {
  const int64_t small = total / parts, larger = total % parts;
  return {part * small + std::min<int64_t>(part, larger), small + (part < larger), total};
}

// A weight is a box inside a whole of the same rank; on one rank the box is the whole. Gradients are summed over the
// ranks that saw other tokens whatever the placement; the flags speak of the tensor group, whose ranks share tokens.
struct Placement {
  Shape whole;
  Shape shape;
  std::array<int64_t, Shape::kMaxRank> begin{};
  // The gradient here is a part of it: the sum over the tensor group, in the coordinates of the whole, is all of it.
  bool is_partial = false;
  bool is_first_copy = true;  // of those who hold this part: norms and checkpoints take this one
  bool is_expert = false;     // other ranks of the expert group hold other experts
  bool is_tied = false;       // the first and the last stage of a pipeline hold one each

  Placement(Shape all) : whole(all), shape(all) {}  // NOLINT: a shape is the placement of a weight held whole

  Placement& cut(int dim, const Cut& c) {
    shape[dim] = c.count;
    begin[size_t(dim)] = c.begin;
    return *this;
  }

  // Calls visit(local, global, count) for the runs of elements that are neighbours here and in the whole, in order,
  // for local flat indices [first, first + n).
  template <class Visit>
  void each_run(int64_t first, int64_t n, Visit&& visit) const;
};

template <class Visit>
void Placement::each_run(int64_t first, int64_t n, Visit&& visit) const {
  if (n <= 0) return;
  // Trailing dims that are held whole make one run with the innermost cut dim.
  int inner = shape.rank() - 1;
  int64_t run = inner >= 0 ? shape[inner] : 1;
  while (inner > 0 && shape[inner] == whole[inner]) run *= shape[--inner];
  std::array<int64_t, Shape::kMaxRank> stride{};
  int64_t s = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) stride[size_t(d)] = s, s *= whole[d];
  const int64_t end = first + n;
  for (int64_t at = first; at < end;) {
    const int64_t row = at / run, offset = at % run, count = std::min(run - offset, end - at);
    int64_t global = inner >= 0 ? begin[size_t(inner)] * stride[size_t(inner)] : 0, rest = row;
    for (int d = inner - 1; d >= 0; --d) {
      global += (begin[size_t(d)] + rest % shape[d]) * stride[size_t(d)];
      rest /= shape[d];
    }
    visit(at, global + offset, count);
    at += count;
  }
}

}  // namespace weft
