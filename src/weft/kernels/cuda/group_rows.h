// GroupRows: rows of one group, which a block of threads takes together; and how groups are cut into them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/kernels/cuda/tiles_shape.h"

namespace weft::cuda {

struct GroupRows {
  int32_t first, count, group;
};
static_assert(sizeof(GroupRows) == 12, "an entry of the runs of kernels.h");

// In the mean: more are tiles, and up to as many are taken by few, whose weights are read a few times.
inline constexpr int64_t kFewRowsOfGroup = 16;

// Groups' rows, at most `most` to an entry; a group without rows has none.
inline std::vector<GroupRows> cut_groups(std::span<const int64_t> starts, int64_t most) {
  std::vector<GroupRows> all;
  for (size_t g = 0; g + 1 < starts.size(); ++g)
    for (int64_t at = starts[g]; at < starts[g + 1]; at += most)
      all.push_back({int32_t(at), int32_t(std::min(most, starts[g + 1] - at)), int32_t(g)});
  return all;
}

// Each group's rows; keeps_empty: also of those that have none.
inline std::vector<GroupRows> whole_groups(std::span<const int64_t> starts, bool keeps_empty) {
  std::vector<GroupRows> all;
  for (size_t g = 0; g + 1 < starts.size(); ++g)
    if (keeps_empty || starts[g] < starts[g + 1])
      all.push_back({int32_t(starts[g]), int32_t(starts[g + 1] - starts[g]), int32_t(g)});
  return all;
}

// Of rows that only the device can tell the groups of: how many are at most in an entry, by those of a group in the
// mean, and how many entries there can be.
constexpr int64_t run_rows(int64_t rows, int64_t groups) {
  const int64_t mean = ceil_div(rows, std::max<int64_t>(groups, 1));
  return mean <= 1 ? 4 : mean <= kFewRowsOfGroup ? 8 : tile_rows(mean);
}
constexpr int64_t most_runs(int64_t rows, int64_t groups) {
  return std::min(rows, rows / run_rows(rows, groups) + groups);
}

// How many rows the groups that have any have in the mean, rounded up.
inline int64_t mean_rows(std::span<const int64_t> starts) {
  int64_t with_rows = 0;
  for (size_t g = 0; g + 1 < starts.size(); ++g) with_rows += starts[g + 1] > starts[g];
  return with_rows == 0 ? 0 : ceil_div(starts.back(), with_rows);
}

}  // namespace weft::cuda
