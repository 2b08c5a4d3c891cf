// Grouped products: slices of their rows and of their stacks.
#include "weft/kernels/grouped_matmul.h"

#include <algorithm>
#include <vector>

#include "weft/kernels/shape_checks.h"

namespace weft {
namespace {

bool cut_into_groups(std::span<const int64_t> starts, int64_t rows) {
  return !starts.empty() && std::ranges::is_sorted(starts) && starts.front() == 0 && starts.back() == rows;
}

bool are_same(const Tensor& a, const Tensor& b) { return bool(a) == bool(b) && (!a || a.raw() == b.raw()); }

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
                  .bias = e.bias ? e.bias.slice_rows(group, 1) : Tensor(),
                  .act = rows(e.act),
                  .gate = rows(e.gate),
                  .up = rows(e.up),
                  .pre = rows(e.pre),
                  .dgate = rows(e.dgate)};
  return one;
}

MatmulArgs gradient_of_group(const GroupedGradientArgs& all, int64_t begin, int64_t count, int64_t group) {
  return {.y = matrix_of(all.y, group),
          .a = all.a.slice_rows(begin, count),
          .b = all.b.slice_rows(begin, count),
          .transpose_a = true,
          .accumulate = all.accumulate,
          .float8 = all.float8};
}

void check_groups(std::span<const GroupedMatmulArgs> products) {
  check(!products.empty() && products.size() <= kMostMatmulsOfOneA,
        "grouped_matmuls: {} products are not made at once", products.size());
  const GroupedMatmulArgs& first = products[0];
  const std::span<const int64_t> starts = first.starts;
  const int64_t rows = first.a.dim(0);
  check(int(!starts.empty()) + int(bool(first.runs)) + int(bool(first.groups)) == 1,
        "grouped_matmuls: rows are cut by starts, or by runs, or name their groups");
  if (const Tensor& named = list_of_groups(first))
    check(named.dtype() == DType::i32 && named.shape() == (first.runs ? Shape{rows, 3} : Shape{rows}),
          "grouped_matmuls: {} {} do not name the groups of {} rows", named.shape(), name_of(named.dtype()), rows);
  else
    check(cut_into_groups(starts, rows), "grouped_matmuls: {} numbers do not cut {} rows into groups", starts.size(),
          rows);
  for (const GroupedMatmulArgs& p : products) {
    check(p.a.raw() == first.a.raw() && p.a.shape() == first.a.shape() && p.starts.data() == starts.data() &&
              p.starts.size() == starts.size() && are_same(p.runs, first.runs) && are_same(p.groups, first.groups),
          "grouped_matmuls: products have one a and the same groups");
    check(p.y.shape().rank() == 2 && p.y.dim(0) == rows, "grouped_matmuls: y is {}, a has {} rows", p.y.shape(),
          rows);
    if (!p.b) continue;
    check(p.b.shape().rank() == 3 && (starts.empty() || p.b.dim(0) == int64_t(starts.size()) - 1),
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

void order_by_group_on_host(Stream&, const GroupOrderArgs& args) {
  shapes::check_order_by_group(args);
  const int64_t copies = args.chosen.numel(), k = args.chosen.dim(1);
  const auto* const chosen = args.chosen.data<int32_t>();
  auto *const at = args.at.data<int32_t>(), *const tokens = args.tokens.data<int32_t>();
  auto* run = args.runs.data<int32_t>();
  std::fill_n(run, args.runs.numel(), 0);
  std::vector<int32_t> next(size_t(args.groups) + 1);
  for (int64_t i = 0; i < copies; ++i) {
    check(chosen[i] >= 0 && chosen[i] < args.groups, "order_by_group: there is no group {}", chosen[i]);
    ++next[size_t(chosen[i]) + 1];
  }
  for (size_t g = 0; g + 1 < next.size(); ++g) {
    if (next[g + 1] > 0) run[0] = next[g], run[1] = next[g + 1], run[2] = int32_t(g), run += 3;
    next[g + 1] += next[g];
  }
  for (int64_t i = 0; i < copies; ++i) {
    at[i] = next[size_t(chosen[i])]++;
    tokens[at[i]] = int32_t(i / k);
  }
}

}  // namespace weft
