// Grouped products, group by group: for tables that do each by itself, and for what all of them check.
#pragma once
#include <array>

#include "weft/kernels/kernels.h"

namespace weft {

// Matrix i of a stack [G, rows, cols].
inline Tensor matrix_of(const Tensor& stack, int64_t i) {
  return stack.slice_rows(i, 1).reshape({stack.dim(1), stack.dim(2)});
}

// The product of `count` rows from `begin` on, all of one group.
MatmulArgs of_group(const GroupedMatmulArgs& all, int64_t begin, int64_t count, int64_t group);

// The gradient of one group's matrix.
MatmulArgs gradient_of_group(const GroupedGradientArgs& all, int64_t begin, int64_t count, int64_t group);

// The list that names groups: of runs, or else row by row; empty where `starts` says them.
inline const Tensor& list_of_groups(const GroupedMatmulArgs& p) { return p.runs ? p.runs : p.groups; }

// Throws Error where the products have not one a, or groups are no runs of all rows.
void check_groups(std::span<const GroupedMatmulArgs> products);
void check_groups(const GroupedGradientArgs& gradients);

// The products of one a, of each group that has rows, or of each run or row. named: `runs` or `groups`, where those
// are given, in memory of the host.
template <void (*kMatmuls)(Stream&, std::span<const MatmulArgs>)>
void matmul_runs(Stream& stream, std::span<const GroupedMatmulArgs> products, const int32_t* named) {
  std::array<MatmulArgs, kMostMatmulsOfOneA> some;
  const auto multiply = [&](int64_t begin, int64_t count, int64_t group) {
    for (size_t i = 0; i < products.size(); ++i) some[i] = of_group(products[i], begin, count, group);
    kMatmuls(stream, std::span(some).first(products.size()));
  };
  const GroupedMatmulArgs& first = products[0];
  if (first.groups)
    for (int64_t row = 0; row < first.groups.numel(); ++row) multiply(row, 1, named[row]);
  if (first.runs)
    for (const int32_t* run = named; run < named + first.runs.numel() && run[1] > 0; run += 3)
      multiply(run[0], run[1], run[2]);
  const std::span<const int64_t> starts = first.starts;
  for (size_t g = 0; g + 1 < starts.size(); ++g)
    if (starts[g] < starts[g + 1]) multiply(starts[g], starts[g + 1] - starts[g], int64_t(g));
}

// An entry for grouped products that gains nothing by doing groups together, to which tensors are memory of the host.
template <void (*kMatmuls)(Stream&, std::span<const MatmulArgs>)>
void each_group(Stream& stream, std::span<const GroupedMatmulArgs> products) {
  check_groups(products);
  const Tensor& named = list_of_groups(products[0]);
  matmul_runs<kMatmuls>(stream, products, named ? named.data<int32_t>() : nullptr);
}

// Entries of tables to which tensors are memory of the host: a run is all of a group.
inline bool multiplies_no_runs(int64_t, int64_t, int64_t, int64_t, bool) { return false; }
void order_by_group_on_host(Stream& stream, const GroupOrderArgs& args);

// The gradients of groups that have rows by kMatmul, the others' by kFill.
template <void (*kMatmul)(Stream&, const MatmulArgs&), void (*kFill)(Stream&, const Tensor&, float)>
void each_gradient(Stream& stream, const GroupedGradientArgs& all) {
  check_groups(all);
  for (size_t g = 0; g + 1 < all.starts.size(); ++g) {
    const int64_t begin = all.starts[g], count = all.starts[g + 1] - begin;
    if (count > 0)
      kMatmul(stream, gradient_of_group(all, begin, count, int64_t(g)));
    else if (!all.accumulate)
      kFill(stream, matrix_of(all.y, int64_t(g)), 0);
  }
}

}  // namespace weft
