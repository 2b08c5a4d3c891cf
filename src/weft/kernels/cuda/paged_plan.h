// How paged attention on tensor cores is cut: a canonical sum that does not depend on who computes it, and the blocks
// of threads that do; needs no GPU.
//
// Keys are counted from the sequence's first. A part is kPartKeys of them, computed from nothing; a row's parts are
// folded in the order of keys within spans of kSpanParts parts, and the spans in their order. So a row has the same
// bits whether a block goes through all its keys or each part has a warp of its own. Lanes: see attention_plan.h.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

#include "weft/base/ceil_div.h"

namespace weft::cuda {

inline constexpr int kPartKeys = 64, kSpanParts = 16;
inline constexpr int kWarpLanes = 16;  // that a warp works on
inline constexpr int kWholeWarps = 4;  // of a block that goes through all keys of its lanes
inline constexpr int kWholeLanes = kWholeWarps * kWarpLanes;

// A sequence with rows to compute.
struct PagedRowsOf {
  int32_t q_begin = 0, q_end = 0;
  int32_t num_keys = 0;
  int32_t table = 0;  // where its blocks are listed
};

// What one block, for each key/value head, computes: these lanes over these parts. Without lanes, nothing.
struct PagedTile {
  int32_t q_begin = 0;  // the row of lane 0
  int32_t lead = 0;     // keys before that row's own
  int32_t table = 0;
  int32_t lane_begin = 0, lane_end = 0;
  int32_t first_part = 0, end_part = 0;
  int32_t slot = -1;  // whole: memory for the spans' sum, where there are several; else where part first_part waits
  int32_t fold = -1;  // what the block counts itself in at, where there are others for the same lanes
};
// Results in slots that are folded, in their order, by the last of the blocks that wait for it.
struct PartFold {
  int32_t first_slot = 0, num_slots = 0;
  int32_t num_arrivals = 0;
  int32_t slot = -1;  // of the result; -1: it is the lanes' output
  int32_t next = -1;  // the fold that the result is for
};
struct PagedPlan {
  std::vector<PagedTile> whole;  // longest first
  std::vector<PagedTile> parts;  // a part to a warp
  std::vector<PartFold> folds;
  int32_t num_whole_slots = 0, num_part_slots = 0;
  int32_t part_lanes = 0;  // that a slot of parts has room for
};

// Few lanes over many keys are cut into parts, unless there is so much else to do that nobody would wait for them.
PagedPlan plan_paged(const std::vector<PagedRowsOf>& sequences, int group, int window, int num_kv_heads,
                     int part_warps);

// As many blocks or slots, a few more than are needed: numbers that grow by one from step to step stay the same for
// many steps, and so do graphs of these (ADR 0019).
constexpr int64_t roomy(int64_t count) {
  constexpr int64_t kLeast = 16;  // so many blocks that do nothing are over at once
  if (count == 0) return 0;
  return count <= kLeast ? kLeast : round_up(count, int64_t(std::bit_floor(uint64_t(count))) / 4);
}

}  // namespace weft::cuda
