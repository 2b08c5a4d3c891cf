// Attention over the blocks of a pool: the tiles of attention, cut at fixed keys, so that a row's bits do not depend
// on what is computed beside it. Sources: Kwon et al., "PagedAttention", 2023; Dao et al., "Flash-Decoding", 2023.
#include "weft/kernels/cuda/attention_forward.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/listed_sequences.h"
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

template <class T, class P, RowCodes kCodes>
void run(Stream& stream, const PagedAttentionArgs& args) {
  // Codes are exact in 16 bits, and their scales are applied to scores and probabilities.
  constexpr bool uses_tensor_cores = !std::is_same_v<T, float> && (kCodes != RowCodes::none || std::is_same_v<T, P>);
  using Tile = std::conditional_t<uses_tensor_cores, typename TileOf<T, kTileKeys>::Type, PlainTile<kTileKeys>>;

  const ListedSequences listed = list_sequences(args);
  std::vector<AttentionSpan> spans;
  std::vector<int32_t> starts;
  for (const PagedRowsOf& s : listed.sequences) {
    spans.push_back({.q_begin = s.q_begin, .q_end = s.q_end, .k_begin = 0, .k_end = s.num_keys});
    starts.push_back(s.table);
  }
  AttentionShape shape = shapes::shape_of(args);
  shape.spans = spans.data(), shape.num_spans = int(spans.size());
  PackedArrays tables;
  const size_t blocks_at = tables.add(listed.blocks), starts_at = tables.add(starts);

  const ScoreRule rule = score_rule(shape);
  ForwardCall<T> call{.y = head_rows<T>(args.y, rule.group), .q = head_rows<const T>(args.q, rule.group)};
  call.num_queries = args.q.dim(0), call.num_kv_heads = shape.num_kv_heads, call.rule = rule;
  const Tensor lse = args.sinks ? stream.allocator().empty(DType::f32, {args.q.dim(1), args.q.dim(0)}) : Tensor();
  call.lse = device_data<float>(lse);
  const ForwardPlan<T> plan(stream, call, shape, args.q.dim(0), Tile::kRows, kSplitKeys, std::move(tables));
  const auto array = [&](size_t at) { return reinterpret_cast<const int32_t*>(plan.device() + at); };
  const BlockTables on_device{args.selected ? device_data<int32_t>(args.selected) : array(blocks_at),
                              array(starts_at)};
  using Keys = PagedRows<P, kCodes, false>;
  using Values = PagedRows<P, kCodes, true>;
  // Sums of four chunks leave few registers to tensor cores.
  with_chunks<uses_tensor_cores ? 2 : 4>(shape.values_dim(), [&]<int kChunks>() {
    launch(stream, paged_attention_kernel<Tile, kChunks, T, Keys, Values>,
           plan.tiles(shape.num_kv_heads, chunk_groups<kChunks>(shape.values_dim())), call,
           paged_rows<P, kCodes, false>(args.keys, shape.head_dim, listed.block_tokens),
           paged_rows<P, kCodes, true>(args.value_pool(), shape.values_dim(), listed.block_tokens), on_device);
  });
  plan.merge(stream, call);
  if (args.sinks) attention_sinks(stream, args.y, lse, args.sinks);
}

// Of rows that select their keys, each of which has parts of its own: so many that these take 256 MiB at most.
int64_t rows_at_once(const PagedAttentionArgs& args) {
  const int64_t rows = args.q.dim(0);
  if (!args.selected || rows == 0) return rows;
  const int64_t numbers = ceil_div(args.selected.dim(1), int64_t(kSplitKeys)) * args.q.dim(1) * (args.y.dim(2) + 1);
  return std::clamp<int64_t>((int64_t(64) << 20) / std::max<int64_t>(numbers, 1), 1, rows);
}

void by_tiles(Stream& stream, const PagedAttentionArgs& args) {
  with_float("paged_attention", args.q, [&]<class T>() {
    switch (args.codes) {
      case RowCodes::int8: return run<T, uint8_t, RowCodes::int8>(stream, args);
      case RowCodes::fp8: return run<T, uint8_t, RowCodes::fp8>(stream, args);
      case RowCodes::none: break;
    }
    with_any_float("paged_attention", args.keys, [&]<class P>() { run<T, P, RowCodes::none>(stream, args); });
  });
}

}  // namespace

void paged_attention(Stream& stream, const PagedAttentionArgs& args) {
  shapes::check_paged_attention(args);
  if (paged_attention_in_parts(stream, args)) return;
  const int64_t rows = args.q.dim(0), at_once = rows_at_once(args);
  if (at_once >= rows) return by_tiles(stream, args);
  std::vector<PagedSequence> sequences;
  for (int64_t first = 0; first < rows; first += at_once)
    by_tiles(stream, selecting_rows(args, first, std::min(at_once, rows - first), sequences));
}

}  // namespace weft::cuda
