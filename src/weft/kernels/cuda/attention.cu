// Attention over spans of packed sequences: a block has a tile of lanes and walks over the keys that they see, with a
// running maximum and sum for each lane. Sources: Dao et al., "FlashAttention", 2022; Dao, "FlashAttention-2", 2023.
#include "weft/kernels/cuda/attention_forward.cuh"
#include "weft/kernels/cuda/attention_ways.h"

namespace weft::cuda {
namespace {

// Registers are shared by as many blocks as the sums of their chunks allow without spills.
template <class T, int kChunks>
__global__ void __launch_bounds__(kTileThreads, kChunks == 1 ? 3 : 2)
    attention_kernel(ForwardCall<T> call, HeadRows<const T> k, HeadRows<const T> v) {
  const QueryTile tile = call.tiles[blockIdx.x / call.num_kv_heads];
  const AttentionSpan span = call.spans[tile.span];
  const int kv_head = int(blockIdx.x) % call.num_kv_heads;
  forward_tile<typename TileOf<T, kTileKeys>::Type, kChunks>(call, tile, span, int(blockIdx.y) * kChunks * kHeadChunk,
                                                             k.from(span.k_begin, kv_head),
                                                             v.from(span.k_begin, kv_head));
}

}  // namespace

void tiled_attention(Stream& stream, const AttentionArgs& args) {
  const AttentionShape& shape = args.shape;
  with_float("attention", args.q, [&]<class T>() {
    constexpr int kRows = TileOf<T, kTileKeys>::Type::kRows;
    const ScoreRule rule = score_rule(shape, args.dropout, args.bias, args.key_bits);
    ForwardCall<T> call{.y = head_rows<T>(args.y, rule.group), .q = head_rows<const T>(args.q, rule.group)};
    call.lse = device_data<float>(args.lse), call.num_queries = args.q.dim(0);
    call.num_kv_heads = shape.num_kv_heads, call.rule = rule;
    const ForwardPlan<T> plan(stream, call, shape, args.q.dim(0), kRows, split_for(shape, kRows));
    with_chunks(shape.values_dim(), [&]<int kChunks>() {
      launch(stream, attention_kernel<T, kChunks>,
             plan.tiles(shape.num_kv_heads, chunk_groups<kChunks>(shape.values_dim())), call,
             head_rows<const T>(args.k, 1), head_rows<const T>(args.v, 1));
    });
    plan.merge(stream, call);
  });
}

}  // namespace weft::cuda
