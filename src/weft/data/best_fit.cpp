// best_fit: rows by the room that is left in them.
#include "weft/data/best_fit.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "weft/base/error.h"

namespace weft {

FittedRows best_fit(std::span<const int32_t> lengths, int32_t room_of_row) {
  std::vector<int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](int32_t i) { return lengths[size_t(i)]; });
  FittedRows rows;
  std::multimap<int32_t, size_t> by_room;
  for (const int32_t i : order) {
    const int32_t length = lengths[size_t(i)];
    check(length <= room_of_row, "{} tokens in a row of {}", length, room_of_row);
    auto at = by_room.lower_bound(length);
    if (at == by_room.end()) at = by_room.emplace(room_of_row, rows.size()), rows.emplace_back();
    const auto [room, row] = *at;
    rows[row].push_back({.item = i, .begin = room_of_row - room});
    by_room.erase(at);
    by_room.emplace(room - length, row);
  }
  return rows;
}

}  // namespace weft
