// best_fit: items of some lengths in rows, whole and one after the other, in as few rows as will do.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// An item of a row, and the token of the row with which it begins.
struct PlacedItem {
  int32_t item, begin;
};
using FittedRows = std::vector<std::vector<PlacedItem>>;

// No length is above `room`, which is a row's. The longest first, each into the row that it leaves the least room in.
// Source: best-fit decreasing; Johnson, "Near-optimal bin packing algorithms", 1973.
FittedRows best_fit(std::span<const int32_t> lengths, int32_t room);

}  // namespace weft
