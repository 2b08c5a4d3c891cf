// Attention over the blocks of a pool: the tiles of attention, cut at fixed keys, so that a row's bits do not depend
// on what is computed beside it. Sources: Kwon et al., "PagedAttention", 2023; Dao et al., "Flash-Decoding", 2023.
#include "weft/kernels/cuda/attention_forward.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/paged_rows.cuh"
#include "weft/kernels/cuda/paged_ways.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

// Long enough that parts cost little beside the keys they are of, short enough that one sequence fills a card.
constexpr int32_t kSplitKeys = 512;

// Where the blocks of each span's sequence are listed.
struct BlockTables {
  const int32_t *blocks, *starts;
};

template <class Tile, int kChunks, class T, class Keys, class Values>
__global__ void __launch_bounds__(kTileThreads)
    paged_attention_kernel(ForwardCall<T> call, Keys keys, Values values, BlockTables tables) {
  __shared__ int bad[kTileKeys];
  if (threadIdx.x < kTileKeys) bad[threadIdx.x] = -1;
  const QueryTile tile = call.tiles[blockIdx.x / call.num_kv_heads];
  const int kv_head = int(blockIdx.x) % call.num_kv_heads;
  const int32_t* const table = tables.blocks + tables.starts[tile.span];
  forward_tile<Tile, kChunks>(call, tile, call.spans[tile.span], int(blockIdx.y) * kChunks * kHeadChunk,
                              keys.of(table, kv_head, bad), values.of(table, kv_head, bad));
}

template <class P, RowCodes kCodes, bool is_guarded>
PagedRows<P, kCodes, is_guarded> paged_rows(const Tensor& pool, int64_t dim) {
  const P* const base = device_data<P>(pool);
  const bool is_coded = kCodes != RowCodes::none;
  const int64_t width = pool.dim(3), vector = is_coded ? 4 : kVectorBytes;
  return {.pool = base,
          .blocks = nullptr,
          .block_tokens = int(pool.dim(1)),
          .row_stride = pool.dim(2) * width,
          .dim = int(dim),
          .width = int(width),
          .is_aligned = are_rows_aligned(base, dim, vector) && are_rows_aligned(base, width, vector),
          .bad = nullptr};
}

template <class T, class P, RowCodes kCodes>
void run(Stream& stream, const PagedAttentionArgs& args) {
  // Codes are exact in 16 bits, and their scales are applied to scores and probabilities.
  constexpr bool uses_tensor_cores = !std::is_same_v<T, float> && (kCodes != RowCodes::none || std::is_same_v<T, P>);
  using Tile = std::conditional_t<uses_tensor_cores, typename TileOf<T, kTileKeys>::Type, PlainTile<kTileKeys>>;

  std::vector<AttentionSpan> spans;
  std::vector<int32_t> blocks, starts;
  for (int i = 0; i < args.num_sequences; ++i) {
    const PagedSequence& s = args.sequences[i];
    if (s.q_begin == s.q_end) continue;
    spans.push_back(shapes::span_of(s));
    starts.push_back(int32_t(blocks.size()));
    blocks.insert(blocks.end(), s.blocks, s.blocks + ceil_div(s.num_keys, args.keys.dim(1)));
  }
  AttentionShape shape = shapes::shape_of(args);
  shape.spans = spans.data(), shape.num_spans = int(spans.size());
  PackedArrays tables;
  const size_t blocks_at = tables.add(blocks), starts_at = tables.add(starts);

  const ScoreRule rule = score_rule(shape);
  ForwardCall<T> call{.y = head_rows<T>(args.y, rule.group), .q = head_rows<const T>(args.q, rule.group)};
  call.num_queries = args.q.dim(0), call.num_kv_heads = shape.num_kv_heads, call.rule = rule;
  const Tensor lse = args.sinks ? stream.allocator().empty(DType::f32, {args.q.dim(1), args.q.dim(0)}) : Tensor();
  call.lse = device_data<float>(lse);
  const ForwardPlan<T> plan(stream, call, shape, args.q.dim(0), Tile::kRows, kSplitKeys, std::move(tables));
  const BlockTables on_device{reinterpret_cast<const int32_t*>(plan.device() + blocks_at),
                              reinterpret_cast<const int32_t*>(plan.device() + starts_at)};
  using Keys = PagedRows<P, kCodes, false>;
  using Values = PagedRows<P, kCodes, true>;
  // Sums of four chunks leave few registers to tensor cores.
  with_chunks<uses_tensor_cores ? 2 : 4>(shape.values_dim(), [&]<int kChunks>() {
    launch(stream, paged_attention_kernel<Tile, kChunks, T, Keys, Values>,
           plan.tiles(shape.num_kv_heads, chunk_groups<kChunks>(shape.values_dim())), call,
           paged_rows<P, kCodes, false>(args.keys, shape.head_dim),
           paged_rows<P, kCodes, true>(args.value_pool(), shape.values_dim()), on_device);
  });
  plan.merge(stream, call);
  if (args.sinks) attention_sinks(stream, args.y, lse, args.sinks);
}

}  // namespace

void paged_attention(Stream& stream, const PagedAttentionArgs& args) {
  shapes::check_paged_attention(args);
  if (paged_attention_in_parts(stream, args)) return;
  with_float("paged_attention", args.q, [&]<class T>() {
    switch (args.codes) {
      case RowCodes::int8: return run<T, uint8_t, RowCodes::int8>(stream, args);
      case RowCodes::fp8: return run<T, uint8_t, RowCodes::fp8>(stream, args);
      case RowCodes::none: break;
    }
    with_any_float("paged_attention", args.keys, [&]<class P>() { run<T, P, RowCodes::none>(stream, args); });
  });
}

}  // namespace weft::cuda
