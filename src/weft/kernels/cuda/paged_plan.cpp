// Paged attention's work lists: whole tiles and parts.
#include "weft/kernels/cuda/paged_plan.h"

#include <algorithm>
#include <functional>
#include <ranges>

#include "weft/base/error.h"

namespace weft::cuda {
namespace {

int64_t lanes_of(const PagedRowsOf& s, int group) { return int64_t(s.q_end - s.q_begin) * group; }

// The parts that lanes [begin, end) see some of.
PagedTile tile_of(const PagedRowsOf& s, int group, int window, int64_t begin, int64_t end) {
  PagedTile t{.q_begin = s.q_begin,
              .lead = s.num_keys - (s.q_end - s.q_begin),
              .table = s.table,
              .lane_begin = int32_t(begin),
              .lane_end = int32_t(end)};
  const int64_t first_row_end = t.lead + begin / group + 1, last_row_end = t.lead + (end - 1) / group + 1;
  t.first_part = window > 0 ? int32_t(std::max<int64_t>(first_row_end - window, 0) / kPartKeys) : 0;
  t.end_part = int32_t((last_row_end - 1) / kPartKeys + 1);
  return t;
}
int32_t spans_of_parts(const PagedTile& t) { return (t.end_part - 1) / kSpanParts - t.first_part / kSpanParts + 1; }

template <class Use>
void for_tiles(const PagedRowsOf& s, int group, int window, int tile_lanes, const Use& use) {
  const int64_t lanes = lanes_of(s, group);
  check(lanes <= INT32_MAX, "paged attention: {} query rows of {} heads are too many for one sequence",
        s.q_end - s.q_begin, group);
  for (int64_t lane = 0; lane < lanes; lane += tile_lanes)
    use(tile_of(s, group, window, lane, std::min<int64_t>(lane + tile_lanes, lanes)));
}

void cut(PagedPlan& plan, PagedTile tile, int part_warps) {
  const int32_t first = tile.first_part, end = tile.end_part, num_spans = spans_of_parts(tile);
  plan.part_lanes = std::max(plan.part_lanes, tile.lane_end - tile.lane_begin);
  const int32_t first_slot = plan.num_part_slots, span_slot = first_slot + end - first;
  plan.num_part_slots = span_slot + (num_spans > 1 ? num_spans : 0);
  const auto all = int32_t(plan.folds.size());
  if (num_spans > 1)
    plan.folds.push_back({.first_slot = span_slot, .num_slots = num_spans, .num_arrivals = num_spans});
  for (int32_t at = first, span = 0; at < end; ++span) {
    const int32_t span_end = std::min(end, (at / kSpanParts + 1) * kSpanParts);
    PartFold fold{.first_slot = first_slot + at - first, .num_slots = span_end - at};
    if (num_spans > 1) fold.slot = span_slot + span, fold.next = all;
    for (; at < span_end; at = tile.end_part, ++fold.num_arrivals) {
      tile.first_part = at, tile.end_part = std::min(at + part_warps, span_end);
      tile.slot = first_slot + at - first, tile.fold = int32_t(plan.folds.size());
      plan.parts.push_back(tile);
    }
    plan.folds.push_back(fold);
  }
}

}  // namespace

PagedPlan plan_paged(const std::vector<PagedRowsOf>& sequences, int group, int window, int num_kv_heads,
                     int part_warps) {
  constexpr int64_t kManyBlocks = 396;  // three to each processor of a large card
  int64_t work = 0;                     // parts that blocks do one after another, in all
  for (const PagedRowsOf& s : sequences)
    for_tiles(s, group, window, kWholeLanes, [&](const PagedTile& t) { work += t.end_part - t.first_part; });
  const int64_t patience = std::max<int64_t>(2 * ceil_div(work * num_kv_heads, kManyBlocks), 2);

  PagedPlan plan;
  for (const PagedRowsOf& s : sequences) {
    const bool has_few = lanes_of(s, group) <= kWholeLanes;
    for_tiles(s, group, window, kWholeLanes, [&](PagedTile t) {
      if (has_few && t.end_part - t.first_part > patience)
        return for_tiles(s, group, window, kWarpLanes, [&](const PagedTile& few) { cut(plan, few, part_warps); });
      if (spans_of_parts(t) > 1) t.slot = plan.num_whole_slots++;
      plan.whole.push_back(t);
    });
  }
  std::ranges::stable_sort(plan.whole, std::greater(), [](const PagedTile& t) { return t.end_part - t.first_part; });
  return plan;
}

}  // namespace weft::cuda
