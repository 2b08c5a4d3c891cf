// Attention's work lists: which blocks there are, from spans alone.
#include "weft/kernels/cuda/attention_plan.h"

#include <algorithm>
#include <ranges>

#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

int group_of(const AttentionShape& s) { return s.num_kv_heads ? s.num_heads / s.num_kv_heads : 1; }

// The window ends before the first key that a row could see: its queries stand too far behind all keys.
bool sees_nothing(const AttentionSpan& a, int window) {
  return a.q_begin == a.q_end || a.k_begin == a.k_end || (a.causal && window > 0 && a.lead >= window);
}

void add_tiles(QueryPlan& plan, const AttentionShape& s, const AttentionSpan& a, int tile_lanes, int32_t split_keys) {
  const int group = group_of(s);
  const int64_t num_lanes = int64_t(a.q_end - a.q_begin) * group;
  check(num_lanes <= INT32_MAX, "attention: {} query rows of {} heads are too many for one span", a.q_end - a.q_begin,
        group);
  if (num_lanes == 0) return;
  const auto span = int32_t(plan.spans.size());
  plan.spans.push_back(a);
  for (int64_t lane = 0; lane < num_lanes; lane += tile_lanes) {
    const int64_t end = std::min<int64_t>(lane + tile_lanes, num_lanes);
    QueryTile tile{.span = span, .lane_begin = int32_t(lane), .lane_end = int32_t(end)};
    const auto first = int32_t(shapes::visible_keys(a, s.window, lane / group).begin / kTileKeys * kTileKeys);
    const auto last = int32_t(shapes::visible_keys(a, s.window, (end - 1) / group).end);
    if (sees_nothing(a, s.window) || first >= last) {
      plan.tiles.push_back(tile);
      continue;
    }
    const int32_t first_part = first / split_keys, end_part = (last - 1) / split_keys + 1;
    const bool is_cut = end_part - first_part > 1;
    if (is_cut) plan.merges.push_back({span, tile.lane_begin, tile.lane_end, plan.num_slots, end_part - first_part});
    for (int32_t part = first_part; part < end_part; ++part) {
      tile.key_begin = std::max(first, part * split_keys);
      tile.key_end = int32_t(std::min<int64_t>(last, (part + int64_t(1)) * split_keys));
      tile.slot = is_cut ? plan.num_slots++ : -1;
      plan.tiles.push_back(tile);
    }
  }
}

// Query rows [first, first + count) of the span that see one of its keys [begin, end).
std::pair<int64_t, int64_t> rows_that_see(const AttentionSpan& a, int window, int64_t begin, int64_t end) {
  const auto rows = std::views::iota(int64_t(0), int64_t(a.q_end - a.q_begin));
  const auto first = std::ranges::partition_point(
      rows, [&](int64_t row) { return shapes::visible_keys(a, window, row).end <= begin; });
  const auto last = std::ranges::partition_point(
      rows, [&](int64_t row) { return shapes::visible_keys(a, window, row).begin < end; });
  return {first - rows.begin(), last - rows.begin()};
}

}  // namespace

QueryPlan plan_queries(const AttentionShape& s, int64_t num_queries, int tile_lanes, int32_t split_keys) {
  QueryPlan plan;
  int32_t row = 0;
  const auto add_blind_rows = [&](int32_t end) {
    if (row < end) add_tiles(plan, s, {.q_begin = row, .q_end = end}, tile_lanes, split_keys);
  };
  for (int i = 0; i < s.num_spans; ++i) {
    if (s.spans[i].q_begin == s.spans[i].q_end) continue;
    add_blind_rows(s.spans[i].q_begin);
    add_tiles(plan, s, s.spans[i], tile_lanes, split_keys);
    row = s.spans[i].q_end;
  }
  add_blind_rows(int32_t(num_queries));
  std::ranges::stable_sort(plan.tiles, std::greater(), [](const QueryTile& t) { return t.key_end - t.key_begin; });
  return plan;
}

int32_t split_for(const AttentionShape& s, int tile_lanes) {
  constexpr int64_t kEnoughBlocks = 264, kFewestKeys = 256, kMostKeys = int64_t(1) << 30;
  int64_t blocks = 0, longest = 0;
  for (int i = 0; i < s.num_spans; ++i) {
    const AttentionSpan& a = s.spans[i];
    if (sees_nothing(a, s.window)) continue;
    blocks += ceil_div(int64_t(a.q_end - a.q_begin) * group_of(s), int64_t(tile_lanes)) * s.num_kv_heads;
    longest = std::max<int64_t>(longest, a.k_end - a.k_begin);
  }
  if (blocks == 0 || blocks >= kEnoughBlocks) return kMostKeys;
  const int64_t parts = ceil_div(kEnoughBlocks, blocks);
  return int32_t(std::max(round_up(ceil_div(longest, parts), int64_t(kTileKeys)), kFewestKeys));
}

KeyPlan plan_keys(const AttentionShape& s, int64_t num_keys, int tile_keys) {
  KeyPlan plan;
  struct Placed {
    int64_t tile;
    KeyItem item;
  };
  std::vector<Placed> all;
  const int group = group_of(s);
  for (int i = 0; i < s.num_spans; ++i) {
    const AttentionSpan& a = s.spans[i];
    if (sees_nothing(a, s.window)) continue;
    check(int64_t(a.q_end - a.q_begin) * group <= INT32_MAX, "attention: {} query rows of {} heads are too many",
          a.q_end - a.q_begin, group);
    for (int64_t tile = a.k_begin / tile_keys; tile * tile_keys < a.k_end; ++tile) {
      const int64_t begin = std::max<int64_t>(tile * tile_keys - a.k_begin, 0);
      const auto [first, last] = rows_that_see(a, s.window, begin, (tile + 1) * tile_keys - a.k_begin);
      if (first < last) all.push_back({tile, {i, int32_t(first * group), int32_t(last * group)}});
    }
  }
  std::ranges::stable_sort(all, {}, &Placed::tile);
  size_t next = 0;
  for (int64_t tile = 0; tile * tile_keys < num_keys; ++tile) {
    KeyTile t{.key_begin = int32_t(tile * tile_keys),
              .key_end = int32_t(std::min<int64_t>((tile + 1) * tile_keys, num_keys)),
              .first_item = int32_t(next)};
    for (; next < all.size() && all[next].tile == tile; ++next) plan.items.push_back(all[next].item);
    t.end_item = int32_t(next);
    plan.tiles.push_back(t);
  }
  std::ranges::stable_sort(plan.tiles, std::greater(), [&](const KeyTile& t) {
    int64_t lanes = 0;
    for (int32_t i = t.first_item; i < t.end_item; ++i)
      lanes += plan.items[size_t(i)].lane_end - plan.items[size_t(i)].lane_begin;
    return lanes;
  });
  return plan;
}

LaunchShape over_tiles(size_t tiles, int num_kv_heads, int64_t column_groups) {
  const uint64_t blocks = tiles * uint64_t(num_kv_heads);
  check(blocks < uint64_t(1) << 31, "attention: {} blocks are too many", blocks);
  return {.blocks_x = unsigned(blocks), .blocks_y = unsigned(column_groups), .threads = kTileThreads};
}

}  // namespace weft::cuda
