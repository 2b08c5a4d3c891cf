// The forward of attention over one tile of lanes and keys, wherever keys and values lie, and the joining of tiles.
#pragma once
#include "weft/kernels/cuda/attention_scores.cuh"
#include "weft/kernels/cuda/attention_tile.cuh"

namespace weft::cuda {

template <class T>
struct ForwardCall {
  HeadRows<T> y;
  HeadRows<const T> q;
  float* lse;  // [N, num_queries], or null
  int64_t num_queries;
  int num_kv_heads;
  ScoreRule rule;
  const AttentionSpan* spans;
  const QueryTile* tiles;
  const MergeTile* merges;
  // Of tiles whose lanes have more: [slot, kv head, row of the tile, value dim] and without value dim.
  float *part_y, *part_lse;
};

// A block does tile `blockIdx.x / num_kv_heads` of kv head `blockIdx.x % num_kv_heads`, and columns of the values
// from `value_begin` on. Vector 0 of keys and values is the span's first. What a lane gets depends on no other lane.
template <class Tile, int kChunks, class T, class Keys, class Values>
__device__ void forward_tile(const ForwardCall<T>& call, const QueryTile& tile, const AttentionSpan& span,
                             int value_begin, const Keys& keys, const Values& values) {
  constexpr int kPerThread = Tile::kPerThread, kColsPerThread = Tile::kColsPerThread;
  static_assert(Tile::kCols == kTileKeys);
  __shared__ typename Tile::Shared shared;
  __shared__ ScoreLane lanes[Tile::kRows];
  const ScoreRule& rule = call.rule;
  const int kv_head = int(blockIdx.x) % call.num_kv_heads, num_lanes = tile.lane_end - tile.lane_begin;
  for (int i = int(threadIdx.x); i < Tile::kRows; i += kTileThreads)
    lanes[i] = i < num_lanes ? score_lane(rule, span, tile.lane_begin + i, kv_head) : no_lane();
  const HeadRows<const T> q = call.q.from(span.q_begin, kv_head);

  float most[kPerThread], total[kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) most[i] = -INFINITY, total[i] = 0;
  typename Tile::template Sums<kChunks> sums;
  Tile::clear(sums);
  for (int key = tile.key_begin; key < tile.key_end; key += Tile::kCols) {
    const int count = min(Tile::kCols, tile.key_end - key);
    typename Tile::Product p;
    Tile::multiply(shared, p, q, tile.lane_begin, num_lanes, keys, key, count,
                   q.dim > Tile::kKept || key == tile.key_begin);
    if (Tile::warp_row() < num_lanes) {
      if constexpr (Keys::kIsCoded) {
#pragma unroll
        for (int j = 0; j < kColsPerThread; ++j) {
          const float scale = Tile::col(j) < count ? keys.scale(key + Tile::col(j)) : 0;
#pragma unroll
          for (int i = 0; i < kPerThread; ++i) p[i][j] *= scale;
        }
      }
      float factors[kPerThread];
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        const ScoreLane& lane = lanes[Tile::row(i)];
        float highest = most[i];
#pragma unroll
        for (int j = 0; j < kColsPerThread; ++j) {
          const int at = key + Tile::col(j);
          p[i][j] = at < tile.key_end && sees(rule, lane, at) ? score_of(rule, lane, at, p[i][j]) : -INFINITY;
          highest = fmaxf(highest, p[i][j]);
        }
        highest = row_max(highest);
        const float base = highest == -INFINITY ? 0 : highest;
        factors[i] = __expf(most[i] - base), most[i] = highest, total[i] *= factors[i];
#pragma unroll
        for (int j = 0; j < kColsPerThread; ++j) {
          p[i][j] = __expf(p[i][j] - base), total[i] += p[i][j];
          if (rule.dropout.p != 0) p[i][j] *= dropout_factor(rule, lane, key + Tile::col(j));
        }
      }
      if constexpr (Values::kIsCoded) {
#pragma unroll
        for (int j = 0; j < kColsPerThread; ++j) {
          const float scale = Tile::col(j) < count ? values.scale(key + Tile::col(j)) : 0;
#pragma unroll
          for (int i = 0; i < kPerThread; ++i) p[i][j] = p[i][j] == 0 ? 0 : p[i][j] * scale;
        }
      }
      Tile::scale(shared, sums, factors);
      Tile::stage(shared, p);
    }
    Tile::add_products(shared, sums, num_lanes, values, key, count, value_begin);
    if constexpr (Values::kIsGuarded) {
      // A value that is no number stood as 0: it must reach the lanes that see it, and no other.
#pragma unroll
      for (int j = 0; j < kColsPerThread; ++j) {
        const int at = key + Tile::col(j);
        if (!values.is_bad(at)) continue;
#pragma unroll
        for (int i = 0; i < kPerThread; ++i)
          if (at >= lanes[Tile::row(i)].begin && at < lanes[Tile::row(i)].end) total[i] = NAN;
      }
    }
  }

  float factors[kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    total[i] = row_sum(total[i]);
    factors[i] = total[i] == 0 ? 0 : 1 / total[i];
  }
  __syncthreads();  // lanes are there even where no key was
  const int64_t first_part = (int64_t(tile.slot) * call.num_kv_heads + kv_head) * Tile::kRows;
  const HeadRows<T> y = call.y.from(span.q_begin, kv_head);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int col = value_begin + c * kHeadChunk + Tile::row_thread() * 4;
    if (value_begin + c * kHeadChunk >= values.dim) break;
    float x[kPerThread][4];
    Tile::read(shared, sums, c, x);
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int row = Tile::row(i);
      if (row >= num_lanes) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) x[i][e] *= factors[i];
      if (tile.slot >= 0)
        store_four(call.part_y + (first_part + row) * values.dim, col, values.dim, x[i], values.dim % 4 == 0);
      else
        store_four(y[tile.lane_begin + row], col, values.dim, x[i], y.is_aligned);
    }
  }
  if (value_begin != 0 || Tile::row_thread() != 0) return;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int row = Tile::row(i);
    if (row >= num_lanes) continue;
    const float lse = most[i] + logf(total[i]);
    if (tile.slot >= 0)
      call.part_lse[first_part + row] = lse;
    else if (call.lse)
      call.lse[lanes[row].head * call.num_queries + lanes[row].row] = lse;
  }
}

// A block joins the results of some lanes of a kv head, in the order of keys.
template <class T>
__global__ void __launch_bounds__(kTileThreads) merge_tiles_kernel(ForwardCall<T> call, int tile_rows) {
  const MergeTile tile = call.merges[blockIdx.x / call.num_kv_heads];
  const AttentionSpan span = call.spans[tile.span];
  const int kv_head = int(blockIdx.x) % call.num_kv_heads, dim = call.y.dim;
  const int num_lanes = tile.lane_end - tile.lane_begin;
  const int64_t first = (int64_t(tile.first_slot) * call.num_kv_heads + kv_head) * tile_rows;
  const int64_t stride = int64_t(call.num_kv_heads) * tile_rows;
  __shared__ float most[kTileThreads], total[kTileThreads];
  for (int i = int(threadIdx.x); i < num_lanes; i += kTileThreads) {
    float highest = -INFINITY, sum = 0;
    for (int s = 0; s < tile.num_slots; ++s) highest = fmaxf(highest, call.part_lse[first + s * stride + i]);
    const float base = highest == -INFINITY ? 0 : highest;
    for (int s = 0; s < tile.num_slots; ++s) sum += __expf(call.part_lse[first + s * stride + i] - base);
    most[i] = base, total[i] = sum;
    const ScoreLane lane = score_lane(call.rule, span, tile.lane_begin + i, kv_head);
    if (call.lse) call.lse[lane.head * call.num_queries + lane.row] = highest + logf(sum);
  }
  __syncthreads();
  const HeadRows<T> y = call.y.from(span.q_begin, kv_head);
  for (int at = int(threadIdx.x); at < num_lanes * dim; at += kTileThreads) {
    const int i = at / dim, col = at % dim;
    float sum = 0;
    for (int s = 0; s < tile.num_slots; ++s) {
      const int64_t part = first + s * stride + i;
      sum += __expf(call.part_lse[part] - most[i]) * call.part_y[part * dim + col];
    }
    store(y[tile.lane_begin + i] + col, total[i] == 0 ? 0 : sum / total[i]);
  }
}

// The plan on the device and memory for parts, as the call's; kept until the call's kernels are queued.
template <class T>
class ForwardPlan {
 public:
  // extra: arrays that travel along.
  ForwardPlan(Stream& stream, ForwardCall<T>& call, const AttentionShape& shape, int64_t num_queries, int tile_rows,
              int32_t split_keys, PackedArrays extra = {})
      : plan_(plan_queries(shape, num_queries, tile_rows, split_keys)), tile_rows_(tile_rows) {
    const size_t spans = extra.add(plan_.spans), tiles = extra.add(plan_.tiles), merges = extra.add(plan_.merges);
    device_ = upload(stream, extra.data(), int64_t(extra.size()));
    call.spans = reinterpret_cast<const AttentionSpan*>(device_ + spans);
    call.tiles = reinterpret_cast<const QueryTile*>(device_ + tiles);
    call.merges = reinterpret_cast<const MergeTile*>(device_ + merges);
    const int64_t vectors = int64_t(plan_.num_slots) * shape.num_kv_heads * tile_rows;
    if (vectors == 0) return;
    part_y_ = stream.allocator().empty(DType::f32, {vectors * shape.values_dim()});
    part_lse_ = stream.allocator().empty(DType::f32, {vectors});
    call.part_y = device_data<float>(part_y_), call.part_lse = device_data<float>(part_lse_);
  }
  LaunchShape tiles(int num_kv_heads, int64_t value_groups) const {
    return over_tiles(plan_.tiles.size(), num_kv_heads, value_groups);
  }
  void merge(Stream& stream, const ForwardCall<T>& call) const {
    launch(stream, merge_tiles_kernel<T>, over_tiles(plan_.merges.size(), call.num_kv_heads), call, tile_rows_);
  }
  const std::byte* device() const { return device_; }

 private:
  const QueryPlan plan_;
  const int tile_rows_;
  const std::byte* device_ = nullptr;
  Tensor part_y_, part_lse_;
};

}  // namespace weft::cuda
