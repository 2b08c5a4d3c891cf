// How attention is cut into blocks of threads: tiles of lanes and the keys each of them looks at; needs no GPU.
//
// The query heads that share a key/value head are laid side by side: lane = query row * group + head in group. A lane
// sees a run of its span's keys that neither begins nor ends before that of the lane before it. Lanes and keys are
// counted inside their span.
#pragma once
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/ceil_div.h"
#include "weft/kernels/cuda/launch_shape.h"
#include "weft/kernels/kernels.h"

namespace weft::cuda {

inline constexpr int kTileThreads = 128;  // of a block
inline constexpr int kTileKeys = 64;      // the first key of a tile is a multiple of it

// What one block, for each key/value head, computes of y: these lanes over these keys.
struct QueryTile {
  int32_t span = 0;
  int32_t lane_begin = 0, lane_end = 0;
  int32_t key_begin = 0, key_end = 0;  // none: the lanes see nothing
  int32_t slot = -1;                   // where the result waits for the others of the same lanes; -1: it is all
};
// Lanes whose keys were cut: results [first_slot, first_slot + num_slots) are theirs, in the order of keys.
struct MergeTile {
  int32_t span = 0;
  int32_t lane_begin = 0, lane_end = 0;
  int32_t first_slot = 0, num_slots = 0;
};
struct QueryPlan {
  std::vector<AttentionSpan> spans;  // the shape's, and ones without keys for the query rows of none
  std::vector<QueryTile> tiles;      // those with most keys first
  std::vector<MergeTile> merges;
  int32_t num_slots = 0;
};

// Key ranges are cut where keys are multiples of split_keys, itself one of kTileKeys.
QueryPlan plan_queries(const AttentionShape&, int64_t num_queries, int tile_lanes, int32_t split_keys);

// Large enough that nothing is cut where there are tiles for every processor of a large card, and else as small as it
// takes to keep these busy. A function of the shape alone.
int32_t split_for(const AttentionShape&, int tile_lanes);

// What one block, for each key/value head, computes of dk and dv: keys [key_begin, key_end) of the tensor, from items
// [first_item, end_item) in their order.
struct KeyTile {
  int32_t key_begin = 0, key_end = 0;
  int32_t first_item = 0, end_item = 0;
};
// The lanes of a span among which are all that see keys of the tile.
struct KeyItem {
  int32_t span = 0;
  int32_t lane_begin = 0, lane_end = 0;
};
struct KeyPlan {
  std::vector<KeyTile> tiles;  // they are all keys of the tensor
  std::vector<KeyItem> items;
};
KeyPlan plan_keys(const AttentionShape&, int64_t num_keys, int tile_keys);

// A block to each tile of each key/value head, and to each group of columns that blocks share out. Throws Error where
// these are more than a grid has.
LaunchShape over_tiles(size_t tiles, int num_kv_heads, int64_t column_groups = 1);

// Of an array of so many bytes: grows in steps of an eighth to a quarter, at multiples of 256, so that arrays that
// grow by a few elements from one step to the next lie where they lay, and graphs of these steps hold (ADR 0019).
constexpr size_t packed_room(size_t bytes) {
  constexpr size_t kLeast = 256;
  const size_t step = std::max(kLeast, std::bit_floor(bytes) / 4);
  return std::max(kLeast, (bytes + step - 1) / step * step);
}

// Arrays that travel to the device in one piece.
class PackedArrays {
 public:
  // Where its elements lie: an offset in bytes.
  template <class T>
  size_t add(std::span<const T> values) {
    const size_t at = bytes_.size();
    const auto* const from = reinterpret_cast<const std::byte*>(values.data());
    bytes_.insert(bytes_.end(), from, from + values.size_bytes());
    bytes_.resize(at + packed_room(values.size_bytes()));
    return at;
  }
  template <class T>
  size_t add(const std::vector<T>& values) {
    return add(std::span<const T>(values));
  }
  const std::byte* data() const { return bytes_.data(); }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace weft::cuda
