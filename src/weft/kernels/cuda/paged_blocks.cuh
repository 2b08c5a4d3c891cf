// What the kernels of paged attention in parts share: where a call's tensors lie, how keys get to shared memory, and
// how lanes leave.
#pragma once
#include "weft/kernels/cuda/paged_parts.cuh"

namespace weft::cuda {

// A block of the pool, and a key of it.
struct KeyPlace {
  int block, in_block;
};

template <class T>
struct PagedCall {
  T* y;
  const T *q, *keys, *values;
  const int32_t* blocks;  // of all sequences
  const PagedTile *whole, *parts;
  const PartFold* folds;
  unsigned* arrivals;  // [fold, kv head], 0
  float4* whole_sums;  // [slot, kv head, columns and ends, thread]
  float* part_sums;    // [slot, kv head, lane, dim]
  float2* part_ends;   // [slot, kv head, lane]: maximum and sum
  int part_lanes;
  int block_tokens, block_shift;  // shift: -1 where tokens are no power of two
  int num_kv_heads, group, window;
  float scale;     // to powers of two
  const T* sinks;  // [N], or null

  // Elements of a head of the lane.
  __device__ __forceinline__ int64_t lane_at(const PagedTile& tile, int kv_head, int lane, int dim) const {
    return ((int64_t(tile.q_begin) + lane / group) * num_kv_heads * group + kv_head * group + lane % group) * dim;
  }
  // What the sum of a lane's probabilities is, and 1 divided by it.
  __device__ __forceinline__ float inverse_of_all(int kv_head, int lane, float most, float total) const {
    if (sinks)
      total = __fadd_rn(total, fast_exp2(fused(load(sinks + kv_head * group + lane % group), kLog2OfE, -most)));
    return inverse_of(total);
  }
  // Where a key of the tile's sequence lies. Keys from `end` on are as the last before it: nobody sees them.
  __device__ __forceinline__ KeyPlace place_of(const PagedTile& tile, int key, int end) const {
    const int existing = min(key, end - 1);
    const int block = block_shift >= 0 ? existing >> block_shift : existing / block_tokens;
    return {blocks[tile.table + block], existing - block * block_tokens};
  }
  // Its row of the pool. Apart, so that nobody waits for the table before the row is wanted.
  __device__ __forceinline__ unsigned row_of(const KeyPlace& place) const {
    return unsigned(place.block * block_tokens + place.in_block);
  }
  __device__ __forceinline__ int key_end(const PagedTile& tile) const {
    return tile.lead + (tile.lane_end - 1) / group + 1;
  }
  __device__ __forceinline__ WarpLanes lanes_of(const PagedTile& tile, int warp) const {
    const int first = tile.lane_begin + warp * kWarpLanes;
    return {first, min(kWarpLanes, tile.lane_end - first), tile.lead, group, window};
  }
};

// Where a unit of 16 bytes of a kv head's keys or values lies in the pool.
struct PoolRows {
  const std::byte* base;  // of row 0
  unsigned stride;        // in bytes
  __device__ __forceinline__ const std::byte* operator[](unsigned row) const { return base + uint64_t(row) * stride; }
};
template <int kDim, class T>
__device__ __forceinline__ PoolRows pool_rows(const PagedCall<T>& call, const T* pool, int kv_head, int unit) {
  PoolRows rows{reinterpret_cast<const std::byte*>(pool + int64_t(kv_head) * kDim) + kVectorBytes * unit,
                unsigned(call.num_kv_heads * kDim * int(sizeof(T)))};
  forget(rows.base);
  return rows;
}
// The unit that a thread copies of each key (start_copy_of_keys).
template <int kDim>
__device__ __forceinline__ int unit_of_thread() {
  return thread_of_warp() % (kDim / 8);
}

template <int kDim, class T>
__device__ __forceinline__ PartQueries<kDim> load_queries(const PagedCall<T>& call, const PagedTile& tile,
                                                          const WarpLanes& lanes, int kv_head) {
  PartQueries<kDim> q;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int lane = thread_row() + 8 * h;
    const T* const from = call.q + call.lane_at(tile, kv_head, lanes.first + lane, kDim) + 8 * thread_column();
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c)
      (h ? q.lower : q.upper)[c] = lane < lanes.count ? load16(from + 32 * c) : make_uint4(0, 0, 0, 0);
  }
  return q;
}

// Starts to copy kKeys keys, from `first` of the part on, to a tile of shared memory: those of a warp. Thread t names
// the row of key t % kKeys; its rows are at unit_of_thread().
template <int kDim, int kKeys>
__device__ __forceinline__ void start_copy_of_keys(uint4* tile, int first, const PoolRows& pool, unsigned row) {
  constexpr int kUnits = kDim / 8, kAtOnce = kWarp / kUnits;
  const int unit = unit_of_thread<kDim>();
  int own = thread_of_warp() / kUnits;
  forget(own);
  const int place = (first + own) * kUnits + (unit ^ turn_of(own));
#pragma unroll
  for (int at = 0; at < kKeys; at += kAtOnce) {
    start_copy16(tile + (place ^ turn_of(at)) + at * kUnits, pool[of_lane(row, at + own)]);
  }
}

// Sums of a warp's lanes as y.
template <int kDim, class T>
__device__ __forceinline__ void store_lanes(const PagedCall<T>& call, const PagedTile& tile, const WarpLanes& lanes,
                                            int kv_head, const float (&sums)[kDim / 8][4],
                                            const LaneStatistics& ends) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int lane = thread_row() + 8 * h;
    if (lane >= lanes.count) continue;
    const float inverse = call.inverse_of_all(kv_head, lanes.first + lane, ends.most[h], ends.total[h]);
    T* const to = call.y + call.lane_at(tile, kv_head, lanes.first + lane, kDim) + 2 * thread_column();
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i)
      *reinterpret_cast<unsigned*>(to + 8 * i) =
          pack<typename NativeOf<T>::Type>(finished(sums[i][2 * h], inverse), finished(sums[i][2 * h + 1], inverse));
  }
}

}  // namespace weft::cuda
