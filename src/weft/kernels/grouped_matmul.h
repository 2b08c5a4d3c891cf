// Grouped products, group by group: for tables that do each by itself, and for what all of them check.
#pragma once
#include <array>

#include "weft/kernels/kernels.h"

namespace weft {

// The product of one group's rows.
MatmulArgs of_group(const GroupedMatmulArgs& all, int64_t group);

// Throws Error where the products have not one a, or groups are no runs of all rows.
void check_groups(std::span<const GroupedMatmulArgs> products);

// An entry for grouped products that gains nothing by doing groups together.
template <void (*kMatmuls)(Stream&, std::span<const MatmulArgs>)>
void each_group(Stream& stream, std::span<const GroupedMatmulArgs> products) {
  check_groups(products);
  const std::span<const int64_t> starts = products[0].starts;
  std::array<MatmulArgs, kMostMatmulsOfOneA> some;
  for (size_t g = 0; g + 1 < starts.size(); ++g) {
    if (starts[g] == starts[g + 1]) continue;
    for (size_t i = 0; i < products.size(); ++i) some[i] = of_group(products[i], int64_t(g));
    kMatmuls(stream, std::span(some).first(products.size()));
  }
}

}  // namespace weft
