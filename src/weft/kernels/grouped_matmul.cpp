// Grouped products: slices of their rows and of their stacks.
#include "weft/kernels/grouped_matmul.h"

#include <algorithm>

namespace weft {
namespace {

bool cut_into_groups(std::span<const int64_t> starts, int64_t rows) {
  return !starts.empty() && std::ranges::is_sorted(starts) && starts.front() == 0 && starts.back() == rows;
}

}  // namespace

MatmulArgs of_group(const GroupedMatmulArgs& all, int64_t begin, int64_t count, int64_t group) {
  const auto rows = [&](const Tensor& t) { return t ? t.slice_rows(begin, count) : Tensor(); };
  MatmulArgs one{.y = rows(all.y),
                 .a = rows(all.a),
                 .transpose_b = all.transpose_b,
                 .accumulate = all.accumulate,
                 .float8 = all.float8};
  if (all.b) one.b = matrix_of(all.b, group);
  if (all.nf4_b) one.nf4_b = all.nf4_b[group];
  if (all.blocks_b) {
    one.blocks_b = all.blocks_b;
    one.blocks_b.rows = all.y.dim(1);
    one.blocks_b.blocks = all.blocks_b.blocks.slice_rows(group * all.y.dim(1), all.y.dim(1));
  }
  const Epilogue& e = all.epilogue;
  one.epilogue = {.kind = e.kind,
                  .f = e.f,
                  .bias = e.bias,
                  .act = rows(e.act),
                  .gate = rows(e.gate),
                  .up = rows(e.up),
                  .pre = rows(e.pre),
                  .dgate = rows(e.dgate)};
  return one;
}

void check_groups(std::span<const GroupedMatmulArgs> products) {
  check(!products.empty() && products.size() <= kMostMatmulsOfOneA,
        "grouped_matmuls: {} products are not made at once", products.size());
  const GroupedMatmulArgs& first = products[0];
  const std::span<const int64_t> starts = first.starts;
  const int64_t rows = first.a.dim(0);
  if (first.groups)
    check(starts.empty() && first.groups.dtype() == DType::i32 && first.groups.shape() == Shape{rows},
          "grouped_matmuls: {} {} do not name the groups of {} rows", first.groups.shape(),
          name_of(first.groups.dtype()), rows);
  else
    check(cut_into_groups(starts, rows),
          "grouped_matmuls: {} numbers do not cut {} rows into groups", starts.size(), rows);
  for (const GroupedMatmulArgs& p : products) {
    check(p.a.raw() == first.a.raw() && p.a.shape() == first.a.shape() && p.starts.data() == starts.data() &&
              p.starts.size() == starts.size() && bool(p.groups) == bool(first.groups) &&
              (!p.groups || p.groups.raw() == first.groups.raw()),
          "grouped_matmuls: products have one a and the same groups");
    check(p.y.shape().rank() == 2 && p.y.dim(0) == rows, "grouped_matmuls: y is {}, a has {} rows", p.y.shape(),
          rows);
    if (!p.b) continue;
    check(p.b.shape().rank() == 3 && (first.groups || p.b.dim(0) == int64_t(starts.size()) - 1),
          "grouped_matmuls: b is {}, of {} groups", p.b.shape(), int64_t(starts.size()) - 1);
  }
}

void check_groups(const GroupedGradientArgs& g) {
  check(g.a.shape().rank() == 2 && g.b.shape().rank() == 2 && g.a.dim(0) == g.b.dim(0),
        "grouped_gradients: a is {} and b {}", g.a.shape(), g.b.shape());
  check(cut_into_groups(g.starts, g.a.dim(0)), "grouped_gradients: {} numbers do not cut {} rows into groups",
        g.starts.size(), g.a.dim(0));
  check(g.y.shape() == Shape{int64_t(g.starts.size()) - 1, g.a.dim(1), g.b.dim(1)},
        "grouped_gradients: y is {}, of {} groups of a {} and b {}", g.y.shape(), g.starts.size() - 1, g.a.shape(),
        g.b.shape());
}

}  // namespace weft
