// Grouped products: slices of their rows and of their stacks.
#include "weft/kernels/grouped_matmul.h"

#include <algorithm>

namespace weft {

MatmulArgs of_group(const GroupedMatmulArgs& all, int64_t group) {
  const int64_t begin = all.starts[size_t(group)], count = all.starts[size_t(group) + 1] - begin;
  const auto rows = [&](const Tensor& t) { return t ? t.slice_rows(begin, count) : Tensor(); };
  MatmulArgs one{.y = rows(all.y),
                 .a = rows(all.a),
                 .transpose_b = all.transpose_b,
                 .accumulate = all.accumulate,
                 .float8 = all.float8};
  if (all.b) one.b = all.b.slice_rows(group, 1).reshape({all.b.dim(1), all.b.dim(2)});
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
  const int64_t rows = first.a.dim(0), groups = int64_t(starts.size()) - 1;
  check(groups >= 0 && std::ranges::is_sorted(starts) && starts.front() == 0 && starts.back() == rows,
        "grouped_matmuls: {} groups are no runs of all {} rows", groups, rows);
  for (const GroupedMatmulArgs& p : products) {
    check(p.a.raw() == first.a.raw() && p.a.shape() == first.a.shape() && p.starts.data() == starts.data() &&
              p.starts.size() == starts.size(),
          "grouped_matmuls: products have one a and the same groups");
    check(p.y.shape().rank() == 2 && p.y.dim(0) == rows, "grouped_matmuls: y is {}, a has {} rows",
          p.y.shape(), rows);
    if (p.b)
      check(p.b.shape().rank() == 3 && p.b.dim(0) == groups, "grouped_matmuls: b is {}, of {} groups", p.b.shape(),
            groups);
  }
}

}  // namespace weft
