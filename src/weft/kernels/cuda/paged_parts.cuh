// The canonical sum of paged attention on tensor cores: what a warp makes of one part of the keys for its lanes, and
// how parts are folded. Every kernel that computes it does so by these functions, and so gives the same bits.
// Sources: Dao, "FlashAttention-2", 2023; Dao et al., "Flash-Decoding", 2023.
//
// Thread t of a warp has lanes t / 4 and t / 4 + 8, and of each product two neighbouring columns: see multiply_add.
// Scores and maxima are scaled to powers of two.
#pragma once
#include "weft/kernels/cuda/paged_plan.h"
#include "weft/kernels/cuda/paged_rows.cuh"
#include "weft/kernels/cuda/tensor_cores.cuh"

namespace weft::cuda {

constexpr int kPartColumns = kPartKeys / 8;  // of 8 keys, or of 8 elements of kPartKeys of a head
constexpr int kGroupDims = 32;               // elements of a head that are summed at once
constexpr int kGroupColumns = kGroupDims / 8;
constexpr int kNoEnd = 0x7fffffff;
constexpr float kLog2OfE = 1.44269504088896340736f;

__device__ __forceinline__ int thread_of_warp() { return int(threadIdx.x) % kWarp; }
__device__ __forceinline__ int thread_row() { return thread_of_warp() / 4; }
__device__ __forceinline__ int thread_column() { return thread_of_warp() % 4; }

// Rows of a tile in shared memory are units of 16 bytes: unit u of key k lies at k kUnits + (u ^ turn_of(k)), so that
// neither the reads of eight threads nor matrices of eight rows meet in a bank. Both terms are sums over bits: a
// thread keeps one place and reaches the others by constants.
__device__ __forceinline__ constexpr int turn_of(int key) { return (key & 1) << 2 | (key & 7) >> 1; }

// The lanes of a warp and which keys they see.
struct WarpLanes {
  int first, count;  // of the tile's sequence; none: count <= 0
  int lead, group, window;
  int first_end, last_end;  // behind the keys that the first lane sees, and the last

  __device__ __forceinline__ WarpLanes(int first_, int count_, int lead_, int group_, int window_)
      : first(first_), count(count_), lead(lead_), group(group_), window(window_) {
    first_end = end(0), last_end = end(count - 1);
  }
  __device__ __forceinline__ int end(int lane) const { return lead + (first + lane) / group + 1; }
  __device__ __forceinline__ int begin_of(int end) const { return window > 0 ? max(end - window, 0) : 0; }
  __device__ __forceinline__ bool see_some(int part) const {
    return count > 0 && part * kPartKeys < last_end && (part + 1) * kPartKeys > begin_of(first_end);
  }
  __device__ __forceinline__ bool see_all(int part) const {
    return begin_of(last_end) <= part * kPartKeys && (part + 1) * kPartKeys <= first_end;
  }
};

// Queries of a warp: words that the threads of four hold have the same eight elements of a head as the keys'.
template <int kDim>
struct PartQueries {
  uint4 upper[kDim / 32], lower[kDim / 32];
};

// keys(j, c) are elements 32 c + 8 thread_column() and on of key 8 j + thread_row() of the part.
template <class N, int kDim, class Keys>
__device__ __forceinline__ void multiply_keys(float (&scores)[kPartColumns][4], const PartQueries<kDim>& q,
                                              const Keys& keys) {
#pragma unroll
  for (int j = 0; j < kPartColumns; ++j) scores[j][0] = scores[j][1] = scores[j][2] = scores[j][3] = 0;
#pragma unroll
  for (int c = 0; c < kDim / 32; ++c) {
    const uint4 a = q.upper[c], b = q.lower[c];
#pragma unroll
    for (int j = 0; j < kPartColumns; ++j) {
      const uint4 k = keys(j, c);
      multiply_add<N>(scores[j], a.x, b.x, a.y, b.y, k.x, k.y);
      multiply_add<N>(scores[j], a.z, b.z, a.w, b.w, k.z, k.w);
    }
  }
}

// Maxima and sums of this thread's two lanes.
struct LaneStatistics {
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
};

// A part's probabilities, in relation to its own maximum, as the left side of a product.
struct PartWeights {
  unsigned words[kPartKeys / 16][4];
};

template <class N>
__device__ __forceinline__ void weigh_keys(PartWeights& weights, LaneStatistics& part,
                                           float (&scores)[kPartColumns][4], float scale) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float highest = -INFINITY;
#pragma unroll
    for (int j = 0; j < kPartColumns; ++j) highest = fmaxf(highest, fmaxf(scores[j][2 * h], scores[j][2 * h + 1]));
    highest = lanes_reduce<4, Larger>(highest);
    part.most[h] = __fmul_rn(highest, scale);
    const float base = part.most[h] == -INFINITY ? 0 : -part.most[h];
    float total = 0;
#pragma unroll
    for (int j = 0; j < kPartColumns; ++j) {
      const float x = fast_exp2(fused(scores[j][2 * h], scale, base));
      const float y = fast_exp2(fused(scores[j][2 * h + 1], scale, base));
      total = __fadd_rn(total, __fadd_rn(x, y));
      weights.words[j / 2][j % 2 * 2 + h] = pack<N>(x, y);
    }
    part.total[h] = lanes_reduce<4, Plus>(total);
  }
}

// Scores of keys that a lane does not see become minus infinity.
__device__ __forceinline__ void hide_keys(float (&scores)[kPartColumns][4], const WarpLanes& lanes, int part) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int lane = thread_row() + 8 * h, first = part * kPartKeys + 2 * thread_column();
    const int last = lanes.end(lane), begin = lane < lanes.count ? lanes.begin_of(last) - first : 0;
    const int end = lane < lanes.count ? last - first : kNoEnd;
#pragma unroll
    for (int j = 0; j < kPartColumns; ++j)
      for (int e = 0; e < 2; ++e)
        if (8 * j + e < begin || 8 * j + e >= end) scores[j][2 * h + e] = -INFINITY;
  }
}

// Keys of a part in shared memory, as multiply_keys takes them.
template <int kDim>
struct PartKeys {
  const uint4* tile;
  int place;
  __device__ __forceinline__ explicit PartKeys(const uint4* tile_)
      : tile(tile_), place(thread_row() * (kDim / 8) + (thread_column() ^ turn_of(thread_row()))) {
    forget(place);
  }
  __device__ __forceinline__ uint4 operator()(int j, int c) const { return tile[(place ^ 4 * c) + j * kDim]; }
};

// Values of a part in shared memory, as the right side of a product.
template <int kDim>
struct PartValues {
  const uint4* tile;
  int place;
  __device__ __forceinline__ explicit PartValues(const uint4* tile_) : tile(tile_) {
    const int key = thread_of_warp() % 16;
    place = key * (kDim / 8) + (thread_of_warp() / 16 ^ turn_of(key));
    forget(place);
  }
  // Keys 16 k and on, elements 16 pair and on of a head: for multiply_add of 8 elements, and of the next 8.
  __device__ __forceinline__ void load(unsigned (&to)[4], int k, int pair) const {
    load_transposed(to, tile + (place ^ 2 * pair) + 2 * k * kDim);
  }
};

// The bits of a word of two keys of which the first is `key`, and of which a lane sees [begin, end).
__device__ __forceinline__ unsigned seen_bits(int key, int begin, int end) {
  return (key >= begin && key < end ? 0xffffu : 0) | (key + 1 >= begin && key + 1 < end ? 0xffff0000u : 0);
}

// sums = weights times elements kGroupDims * group and on of the values.
template <class N, int kDim>
__device__ __forceinline__ void sum_values(float (&sums)[kGroupColumns][4], const PartWeights& weights,
                                           const PartValues<kDim>& values, int group) {
#pragma unroll
  for (int i = 0; i < kGroupColumns; ++i) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0;
#pragma unroll
  for (int k = 0; k < kPartKeys / 16; ++k) {
    const unsigned(&a)[4] = weights.words[k];
#pragma unroll
    for (int pair = 0; pair < kGroupColumns / 2; ++pair) {
      unsigned b[4];
      values.load(b, k, group * (kGroupColumns / 2) + pair);
      multiply_add<N>(sums[2 * pair], a[0], a[1], a[2], a[3], b[0], b[1]);
      multiply_add<N>(sums[2 * pair + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
  }
}

// The same lane by lane, none of which gets to know the values of keys that it does not see.
template <class N, int kDim>
__device__ void sum_seen_values(float (&sums)[kGroupColumns][4], const PartWeights& weights,
                                const PartValues<kDim>& values, int group, const WarpLanes& lanes, int part) {
#pragma unroll
  for (int pair = 0; pair < kGroupColumns / 2; ++pair) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[2 * pair][e] = sums[2 * pair + 1][e] = 0;
#pragma unroll 1
    for (int lane = 0; lane < lanes.count; ++lane) {
      const int first = part * kPartKeys + 2 * thread_column();
      const int end = lanes.end(lane) - first, begin = lanes.begin_of(lanes.end(lane)) - first;
      float x[2][4] = {};
#pragma unroll
      for (int k = 0; k < kPartKeys / 16; ++k) {
        unsigned b[4];
        values.load(b, k, group * (kGroupColumns / 2) + pair);
        const unsigned lower = seen_bits(16 * k, begin, end), upper = seen_bits(16 * k + 8, begin, end);
        const unsigned(&a)[4] = weights.words[k];
        multiply_add<N>(x[0], a[0], a[1], a[2], a[3], b[0] & lower, b[1] & upper);
        multiply_add<N>(x[1], a[0], a[1], a[2], a[3], b[2] & lower, b[3] & upper);
      }
      const bool is_own = lane % 8 == thread_row();
#pragma unroll
      for (int i = 0; i < 2; ++i)
        for (int e = 0; e < 4; ++e)
          sums[2 * pair + i][e] = is_own && e / 2 == lane / 8 ? x[i][e] : sums[2 * pair + i][e];
    }
  }
}

// Whether a part's values have what is no finite number: 0 times it would reach lanes that do not see it.
template <class N, int kDim>
__device__ __forceinline__ bool has_odd_values(const uint4* tile) {
  bool is_odd = false;
#pragma unroll 4
  for (int i = thread_of_warp(); i < kPartKeys * (kDim / 8); i += kWarp) is_odd |= !is_finite<N>(tile[i]);
  return __any_sync(kAllLanes, is_odd);
}

// use(g, sums) with the sums of each group of elements.
template <class N, int kDim, class Use>
__device__ __forceinline__ void sum_all_values(const PartWeights& weights, const uint4* tile, const WarpLanes& lanes,
                                               int part, bool is_odd, const Use& use) {
  const PartValues<kDim> values(tile);
  if (is_odd) {
#pragma unroll
    for (int g = 0; g < kDim / kGroupDims; ++g) {
      float sums[kGroupColumns][4];
      sum_seen_values<N, kDim>(sums, weights, values, g, lanes, part);
      use(g, sums);
    }
  } else {
#pragma unroll
    for (int g = 0; g < kDim / kGroupDims; ++g) {
      float sums[kGroupColumns][4];
      sum_values<N, kDim>(sums, weights, values, g);
      use(g, sums);
    }
  }
}

// How a sum and the part that comes next are joined. What a lane does not see leaves its sum as it is, but for the
// sign of zeros, which finished() takes away.
struct FoldFactors {
  float most, of_sum, of_part;
  __device__ __forceinline__ FoldFactors(float sum_most, float part_most) : most(fmaxf(sum_most, part_most)) {
    const float base = most == -INFINITY ? 0 : most;
    of_sum = fast_exp2(__fadd_rn(sum_most, -base)), of_part = fast_exp2(__fadd_rn(part_most, -base));
  }
  __device__ __forceinline__ float operator()(float sum, float part) const {
    return fused(sum, of_sum, __fmul_rn(part, of_part));
  }
};
__device__ __forceinline__ float inverse_of(float total) { return total == 0 ? 0 : __fdiv_rn(1, total); }
__device__ __forceinline__ float finished(float sum, float inverse) {
  return __fadd_rn(__fmul_rn(sum, inverse), 0.0f);
}

}  // namespace weft::cuda
