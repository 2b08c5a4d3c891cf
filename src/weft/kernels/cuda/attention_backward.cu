// Attention backward: scores are computed anew from q, k and lse. One kernel walks over keys for dq, one over lanes
// for dk and dv, so that no sum is shared by blocks. Source: Dao, "FlashAttention-2", 2023.
#include "weft/kernels/cuda/attention_scores.cuh"
#include "weft/kernels/cuda/attention_tile.cuh"
#include "weft/kernels/cuda/attention_ways.h"

namespace weft::cuda {
namespace {

template <class T>
struct BackwardCall {
  HeadRows<T> dq, dk, dv;
  HeadRows<const T> dy, y, q, k, v;
  const float* lse;  // [N, num_queries]
  float* delta;      // [N, num_queries]: dy . y
  float* part_bias;  // [query tile, N, width of the bias]: gradients of each tile; null without a bias
  int64_t num_queries;
  int num_heads, num_kv_heads;
  ScoreRule rule;
  const AttentionSpan *query_spans, *key_spans;
  const QueryTile* query_tiles;
  const KeyTile* key_tiles;
  const KeyItem* key_items;
};

// A warp to a head of a query row.
template <class T>
__global__ void delta_kernel(BackwardCall<T> call) {
  const int64_t warps = element_stride() / kWarp, lane = threadIdx.x % kWarp;
  for (int64_t i = first_element() / kWarp; i < call.num_queries * call.num_heads; i += warps) {
    const T *const dy = call.dy.base + i * call.dy.dim, *const y = call.y.base + i * call.y.dim;
    float sum = 0;
    for (int64_t c = lane; c < call.y.dim; c += kWarp) sum += load(dy + c) * load(y + c);
    sum = warp_sum(sum);
    if (lane == 0) call.delta[i % call.num_heads * call.num_queries + i / call.num_heads] = sum;
  }
}

// A lane with what the backward knows of it.
template <class T>
__device__ __forceinline__ ScoreLane known_lane(const BackwardCall<T>& call, const AttentionSpan& span, int lane,
                                                int kv_head) {
  ScoreLane s = score_lane(call.rule, span, lane, kv_head);
  const int64_t at = s.head * call.num_queries + s.row;
  s.lse = call.lse[at], s.delta = call.delta[at];
  if (s.lse == -INFINITY) s.begin = s.end = 0;
  return s;
}

// Gradients that one score gives, from the products of its query and key and of dy and value.
struct ScoreGradient {
  float p;        // the probability times dropout's factor
  float dscore;   // of the score
  float product;  // of the product of query and key
};
__device__ __forceinline__ ScoreGradient gradient_of(const ScoreRule& rule, const ScoreLane& lane, int key,
                                                     float product, float dp) {
  if (!sees(rule, lane, key)) return {0, 0, 0};
  float slope = 0;
  const float p = __expf(score_of(rule, lane, key, product, &slope) - lane.lse);
  const float factor = dropout_factor(rule, lane, key);
  const float dscore = p * (factor * dp - lane.delta);
  return {p * factor, dscore, dscore * slope};
}

// Adds a tile's dscores, in f32 by row and column from `key` on, to the tile's part of dbias: first along the
// diagonals, which are all keys at one distance, and then those that share a column.
template <class T, class Rows>
__device__ void add_bias_gradient(const BackwardCall<T>& call, const Rows& dscores, const ScoreLane* lanes,
                                  int num_lanes, int key, int count, int kv_head) {
  __shared__ float diagonals[kTileThreads];
  const ScoreRule& rule = call.rule;
  const int width = 2 * rule.reach + 1, nearest = lanes[num_lanes - 1].distance + key;
  const int num_diagonals = lanes[0].distance + key + count - nearest;
  float* const part = call.part_bias + int64_t(blockIdx.x / call.num_kv_heads) * call.num_heads * width;
  const auto column = [&](int diagonal) {
    return clamped(int64_t(nearest) + diagonal, -rule.reach, rule.reach) + rule.reach;
  };
  const int first = column(0), num_columns = column(num_diagonals - 1) - first + 1, thread = int(threadIdx.x);
  __syncthreads();
  for (int head = kv_head * rule.group; head < (kv_head + 1) * rule.group; ++head) {
    if (thread < num_diagonals) {
      float sum = 0;
      for (int i = 0; i < num_lanes; ++i) {
        const int col = nearest + thread - lanes[i].distance - key;
        if (lanes[i].head == head && col >= 0 && col < count) sum += dscores[i][col];
      }
      diagonals[thread] = sum;
    }
    __syncthreads();
    if (thread < num_columns) {
      float sum = 0;
      for (int d = 0; d < num_diagonals; ++d)
        if (column(d) == first + thread) sum += diagonals[d];
      part[int64_t(head) * width + first + thread] += sum;
    }
    __syncthreads();
  }
}

// A block has a tile of lanes and columns of dq from blockIdx.y * kChunks * kHeadChunk on.
template <class T, int kChunks>
__global__ void __launch_bounds__(kTileThreads) query_gradient_kernel(BackwardCall<T> call) {
  using Tile = typename TileOf<T, kTileKeys>::Type;
  __shared__ typename Tile::Shared shared;
  __shared__ ScoreLane lanes[Tile::kRows];
  const QueryTile tile = call.query_tiles[blockIdx.x / call.num_kv_heads];
  const AttentionSpan span = call.query_spans[tile.span];
  const int kv_head = int(blockIdx.x) % call.num_kv_heads, num_lanes = tile.lane_end - tile.lane_begin;
  const int col_begin = int(blockIdx.y) * kChunks * kHeadChunk;
  const bool adds_bias = call.part_bias && blockIdx.y == 0;
  for (int i = int(threadIdx.x); i < Tile::kRows; i += kTileThreads)
    lanes[i] = i < num_lanes ? known_lane(call, span, tile.lane_begin + i, kv_head) : no_lane();
  if (adds_bias) {
    const int64_t width = 2 * call.rule.reach + 1, count = call.rule.group * width;
    const int64_t first =
        (int64_t(blockIdx.x / call.num_kv_heads) * call.num_heads + kv_head * call.rule.group) * width;
    for (int64_t i = threadIdx.x; i < count; i += kTileThreads) call.part_bias[first + i] = 0;
  }
  const HeadRows<const T> q = call.q.from(span.q_begin, kv_head), dy = call.dy.from(span.q_begin, kv_head);
  const HeadRows<const T> k = call.k.from(span.k_begin, kv_head), v = call.v.from(span.k_begin, kv_head);
  typename Tile::template Sums<kChunks> sums;
  Tile::clear(sums);
  for (int key = tile.key_begin; key < tile.key_end; key += Tile::kCols) {
    const int count = min(Tile::kCols, tile.key_end - key);
    typename Tile::Product ds, dp;
    Tile::multiply(shared, dp, dy, tile.lane_begin, num_lanes, v, key, count);
    Tile::multiply(shared, ds, q, tile.lane_begin, num_lanes, k, key, count);
#pragma unroll
    for (int i = 0; i < Tile::kPerThread; ++i) {
      const ScoreLane& lane = lanes[Tile::row(i)];
#pragma unroll
      for (int j = 0; j < Tile::kColsPerThread; ++j) {
        const ScoreGradient g = gradient_of(call.rule, lane, key + Tile::col(j), ds[i][j], dp[i][j]);
        ds[i][j] = g.product, dp[i][j] = g.dscore;
      }
    }
    if (adds_bias) {
      for (int i = 0; i < Tile::kPerThread; ++i)
        for (int j = 0; j < Tile::kColsPerThread; ++j) shared.rows[Tile::row(i)][Tile::col(j)] = dp[i][j];
      add_bias_gradient(call, shared.rows, lanes, num_lanes, key, count, kv_head);
    }
    Tile::stage(shared, ds);
    Tile::add_products(shared, sums, num_lanes, k, key, count, col_begin);
  }
  const HeadRows<T> dq = call.dq.from(span.q_begin, kv_head);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int col = col_begin + c * kHeadChunk + Tile::row_thread() * 4;
    if (col_begin + c * kHeadChunk >= dq.dim) break;
    float x[Tile::kPerThread][4];
    Tile::read(shared, sums, c, x);
#pragma unroll
    for (int i = 0; i < Tile::kPerThread; ++i)
      if (Tile::row(i) < num_lanes) store_four(dq[tile.lane_begin + Tile::row(i)], col, dq.dim, x[i], dq.is_aligned);
  }
}

// A block has a tile of keys, and columns of dk and dv from blockIdx.y * kChunks * kHeadChunk on.
template <class T, int kChunks>
__global__ void __launch_bounds__(kTileThreads) key_gradient_kernel(BackwardCall<T> call) {
  using Tile = typename TileOf<T, 32>::Type;
  __shared__ typename Tile::Shared shared;
  __shared__ ScoreLane lanes[Tile::kCols];
  const KeyTile tile = call.key_tiles[blockIdx.x / call.num_kv_heads];
  const int kv_head = int(blockIdx.x) % call.num_kv_heads, num_keys = tile.key_end - tile.key_begin;
  const int col_begin = int(blockIdx.y) * kChunks * kHeadChunk;
  const HeadRows<const T> k = call.k.from(0, kv_head), v = call.v.from(0, kv_head);
  typename Tile::template Sums<kChunks> dk, dv;
  Tile::clear(dk), Tile::clear(dv);
  for (int item = tile.first_item; item < tile.end_item; ++item) {
    const KeyItem lane_range = call.key_items[item];
    const AttentionSpan span = call.key_spans[lane_range.span];
    const HeadRows<const T> q = call.q.from(span.q_begin, kv_head), dy = call.dy.from(span.q_begin, kv_head);
    for (int first = lane_range.lane_begin; first < lane_range.lane_end; first += Tile::kCols) {
      const int count = min(Tile::kCols, lane_range.lane_end - first);
      __syncthreads();
      for (int i = int(threadIdx.x); i < Tile::kCols; i += kTileThreads)
        lanes[i] = i < count ? known_lane(call, span, first + i, kv_head) : no_lane();
      typename Tile::Product p, ds;
      Tile::multiply(shared, ds, v, tile.key_begin, num_keys, dy, first, count);
      Tile::multiply(shared, p, k, tile.key_begin, num_keys, q, first, count);
#pragma unroll
      for (int j = 0; j < Tile::kColsPerThread; ++j) {
        const ScoreLane& lane = lanes[Tile::col(j)];
#pragma unroll
        for (int i = 0; i < Tile::kPerThread; ++i) {
          const int key = tile.key_begin + Tile::row(i) - span.k_begin;
          const ScoreGradient g = gradient_of(call.rule, lane, key, p[i][j], ds[i][j]);
          p[i][j] = g.p, ds[i][j] = g.product;
        }
      }
      Tile::stage(shared, p);
      Tile::add_products(shared, dv, num_keys, dy, first, count, col_begin);
      Tile::stage(shared, ds);
      Tile::add_products(shared, dk, num_keys, q, first, count, col_begin);
    }
  }
  const auto write = [&](const HeadRows<T>& to, const auto& sums) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int col = col_begin + c * kHeadChunk + Tile::row_thread() * 4;
      if (col_begin + c * kHeadChunk >= to.dim) break;
      float x[Tile::kPerThread][4];
      Tile::read(shared, sums, c, x);
#pragma unroll
      for (int i = 0; i < Tile::kPerThread; ++i)
        if (Tile::row(i) < num_keys) store_four(to[tile.key_begin + Tile::row(i)], col, to.dim, x[i], to.is_aligned);
    }
  };
  write(call.dk.from(0, kv_head), dk);
  write(call.dv.from(0, kv_head), dv);
}

__global__ void sum_bias_parts_kernel(float* dbias, const float* parts, int64_t count, int64_t num_parts) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    float sum = 0;
    for (int64_t part = 0; part < num_parts; ++part) sum += parts[part * count + i];
    dbias[i] = sum;
  }
}

template <class T>
void run(Stream& stream, const AttentionBackwardArgs& args) {
  const AttentionShape& shape = args.shape;
  const ScoreRule rule = score_rule(shape, args.dropout, args.bias, args.key_bits);
  const int64_t num_queries = args.q.dim(0);
  const QueryPlan queries =
      plan_queries(shape, num_queries, TileOf<T, kTileKeys>::Type::kRows, /*split_keys=*/int32_t(1) << 30);
  const KeyPlan keys = plan_keys(shape, args.k.dim(0), TileOf<T, 32>::Type::kRows);
  PackedArrays packed;
  const size_t query_spans = packed.add(queries.spans), query_tiles = packed.add(queries.tiles);
  const size_t key_spans = packed.add(std::span(shape.spans, size_t(shape.num_spans)));
  const size_t key_tiles = packed.add(keys.tiles), key_items = packed.add(keys.items);
  const std::byte* const device = upload(stream, packed.data(), int64_t(packed.size()));
  const Tensor delta = stream.allocator().empty(DType::f32, {shape.num_heads * num_queries});
  Tensor part_bias;
  if (args.bias)
    part_bias = stream.allocator().empty(DType::f32, {int64_t(queries.tiles.size()) * args.bias.numel()});

  BackwardCall<T> call{};
  call.dq = head_rows<T>(args.dq, rule.group), call.dk = head_rows<T>(args.dk, 1), call.dv = head_rows<T>(args.dv, 1);
  call.dy = head_rows<const T>(args.dy, rule.group), call.y = head_rows<const T>(args.y, rule.group);
  call.q = head_rows<const T>(args.q, rule.group);
  call.k = head_rows<const T>(args.k, 1), call.v = head_rows<const T>(args.v, 1);
  call.lse = device_data<float>(args.lse), call.delta = device_data<float>(delta);
  call.part_bias = device_data<float>(part_bias), call.num_queries = num_queries;
  call.num_heads = shape.num_heads, call.num_kv_heads = shape.num_kv_heads, call.rule = rule;
  call.query_spans = reinterpret_cast<const AttentionSpan*>(device + query_spans);
  call.query_tiles = reinterpret_cast<const QueryTile*>(device + query_tiles);
  call.key_spans = reinterpret_cast<const AttentionSpan*>(device + key_spans);
  call.key_tiles = reinterpret_cast<const KeyTile*>(device + key_tiles);
  call.key_items = reinterpret_cast<const KeyItem*>(device + key_items);

  launch(stream, delta_kernel<T>, over_elements(num_queries * shape.num_heads * kWarp), call);
  const int64_t dim = shape.head_dim, widest = std::max<int64_t>(dim, shape.values_dim());
  with_chunks(dim, [&]<int kChunks>() {
    launch(stream, query_gradient_kernel<T, kChunks>,
           over_tiles(queries.tiles.size(), call.num_kv_heads, chunk_groups<kChunks>(dim)), call);
  });
  with_chunks<1, 2>(widest, [&]<int kChunks>() {
    launch(stream, key_gradient_kernel<T, kChunks>,
           over_tiles(keys.tiles.size(), call.num_kv_heads, chunk_groups<kChunks>(widest)), call);
  });
  if (args.bias)
    launch(stream, sum_bias_parts_kernel, over_elements(args.dbias.numel()), device_data<float>(args.dbias),
           call.part_bias, args.dbias.numel(), int64_t(queries.tiles.size()));
}

}  // namespace

void tiled_attention_backward(Stream& stream, const AttentionBackwardArgs& args) {
  with_float("attention_backward", args.q, [&]<class T>() { run<T>(stream, args); });
}

}  // namespace weft::cuda
