// The keys that rows of sparse attention select: scores by the tiles of attention, whose lanes are heads of rows,
// then a threshold to each row, found digit by digit, and the list of what is above it. A score is a sum in an order
// that depends on the number of heads alone, so a row selects the same in any company. Source: DeepSeek-AI,
// "DeepSeek-V3.2", 2025.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/listed_sequences.h"
#include "weft/kernels/cuda/paged_rows.cuh"
#include "weft/kernels/cuda/select_plan.h"
#include "weft/kernels/cuda/tensor_cores.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T>
struct ScoreCall {
  HeadRows<const T> q;
  const float* weights;  // [T, heads]
  float* scores;         // as KeysOfRow has them
  const KeysOfRow* rows;
  const ScoreTile* tiles;  // of this chunk
  const int32_t* blocks;
  int heads, num_tiles;
};

// Adds what `count` lanes of a tile from `first` on make of a key: their products are in `rows`.
template <int kStride>
__device__ __forceinline__ float add_heads(float sum, const float (*rows)[kStride], const float* weights, int first,
                                           int count, int col) {
#pragma unroll 8
  for (int lane = first; lane < first + count; ++lane) sum = fused(weights[lane], fmaxf(rows[lane][col], 0.0f), sum);
  return sum;
}

// A block does tile `blockIdx.x % num_tiles` and kScoredKeys keys: tiles that read the same keys run together.
template <class Tile, class T, class Keys>
__global__ void __launch_bounds__(kTileThreads) score_keys_kernel(ScoreCall<T> call, Keys pool) {
  static_assert(2 * Tile::kCols == kTileThreads);
  constexpr int kHalf = Tile::kRows / 2;
  __shared__ typename Tile::Shared shared;
  __shared__ float weights[Tile::kRows], upper_sums[Tile::kCols];
  follow();
  const ScoreTile tile = call.tiles[blockIdx.x % unsigned(call.num_tiles)];
  const KeysOfRow last = call.rows[tile.row + tile.num_rows - 1];
  const int64_t begin = int64_t(blockIdx.x / unsigned(call.num_tiles)) * kScoredKeys;
  if (begin >= last.num_keys) return;
  const int end = int(min(begin + kScoredKeys, int64_t(last.num_keys)));
  const Keys keys = pool.of(call.blocks + last.table, 0, nullptr);
  const HeadRows<const T> q = call.q.from(tile.row, 0);
  const int num_lanes = tile.num_rows * call.heads;
  const bool has_one_row = call.heads > kHalf, is_kept = num_lanes <= Tile::kRows && q.dim <= Tile::kKept;
  const int own_col = int(threadIdx.x) % Tile::kCols, own_half = int(threadIdx.x) / Tile::kCols;

  for (int key = int(begin); key < end; key += Tile::kCols) {
    const int count = min(Tile::kCols, end - key);
    const auto put_score = [&](const KeysOfRow& row, int col, float score) {
      if (key + col >= min(end, row.num_keys)) return;
      if constexpr (Keys::kIsCoded) score *= keys.scale(key + col);
      call.scores[row.scores + key + col] = score;
    };
    float sum = 0;
    for (int lane = 0; lane < num_lanes; lane += Tile::kRows) {
      const int num = min(Tile::kRows, num_lanes - lane);
      const bool is_new = !is_kept || key == int(begin);
      typename Tile::Product p;
      Tile::multiply(shared, p, q, lane, num, keys, key, count, is_new);
      Tile::to_rows(shared, p);
      if (is_new && int(threadIdx.x) < num)
        weights[threadIdx.x] = call.weights[int64_t(tile.row) * call.heads + lane + int(threadIdx.x)];
      __syncthreads();
      if (has_one_row)
        sum = add_heads(sum, shared.rows, weights, own_half * kHalf, min(num - own_half * kHalf, kHalf), own_col);
    }
    if (has_one_row) {
      if (own_half == 1) upper_sums[own_col] = sum;
      __syncthreads();
      if (own_half == 0) put_score(last, own_col, sum + upper_sums[own_col]);
      continue;
    }
    for (int at = int(threadIdx.x); at < tile.num_rows * Tile::kCols; at += kTileThreads) {
      const int row = at / Tile::kCols, col = at % Tile::kCols;
      put_score(call.rows[tile.row + row], col,
                add_heads(0, shared.rows, weights, row * call.heads, call.heads, col));
    }
  }
}

constexpr int kSelectThreads = 512, kSelectWarps = kSelectThreads / kWarp;
constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
constexpr int kScoresAtOnce = kSelectThreads * kScoresOfThread;

struct Selection {
  int32_t* selected;  // [T, most]
  const float* scores;
  const KeysOfRow* rows;
  const int32_t* blocks;
  int first_row, most, block_tokens;

  __device__ __forceinline__ int32_t pool_row(const KeysOfRow& row, int key) const {
    const unsigned block = unsigned(key) / unsigned(block_tokens), inside = unsigned(key) % unsigned(block_tokens);
    return blocks[row.table + int64_t(block)] * block_tokens + int32_t(inside);
  }
};

// Neighbouring keys of a row as they are ordered: rank_of (selected_keys.h) of their scores.
struct RanksOfThread {
  unsigned ranks[kScoresOfThread];
  int first, count;  // of those that exist

  __device__ __forceinline__ RanksOfThread(const float* scores, int num_keys, int first_) : first(first_) {
    count = min(max(num_keys - first, 0), kScoresOfThread);
    if (count == 0) return;
#pragma unroll
    for (int i = 0; i < kScoresOfThread; i += 4) {
      const uint4 bits = load16(scores + first + i);
      ranks[i] = rank(bits.x), ranks[i + 1] = rank(bits.y), ranks[i + 2] = rank(bits.z), ranks[i + 3] = rank(bits.w);
    }
  }
  static __device__ __forceinline__ unsigned rank(unsigned bits) {
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  }
  // use(key, rank), in order.
  template <class Use>
  __device__ __forceinline__ void for_each(Use&& use) const {
#pragma unroll
    for (int i = 0; i < kScoresOfThread; ++i)
      if (i < count) use(first + i, ranks[i]);
  }
};

// Of this thread and those of the warp before it.
__device__ __forceinline__ int sum_up_to(int x) {
  const int lane = int(threadIdx.x) % kWarp;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int other = of_lane(x, max(lane - distance, 0));
    if (lane >= distance) x += other;
  }
  return x;
}

// Ranks above `rank` are selected, and of those that are equal the first `num_equal`.
struct Threshold {
  unsigned rank;
  int num_equal;
};
struct ChosenDigit {
  int digit, num_wanted;  // of the ranks that have it
  bool takes_all;
};

// The digit of the num_wanted-th highest; by the first warp.
__device__ void choose_digit(ChosenDigit& chosen, const int* counts, int num_wanted) {
  constexpr int kPer = kDigits / kWarp;
  const int highest = kDigits - 1 - int(threadIdx.x) * kPer;
  int own = 0;
  for (int i = 0; i < kPer; ++i) own += counts[highest - i];
  int above = sum_up_to(own) - own;
  if (above >= num_wanted || above + own < num_wanted) return;
  int digit = highest;
  for (; above + counts[digit] < num_wanted; --digit) above += counts[digit];
  chosen = {digit, num_wanted - above, counts[digit] == num_wanted - above};
}

__device__ Threshold threshold_of(const float* scores, int num_keys, int most) {
  __shared__ int counts[kDigits];
  __shared__ ChosenDigit chosen;
  unsigned prefix = 0, known = 0;
  int num_wanted = most;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (int i = int(threadIdx.x); i < kDigits; i += kSelectThreads) counts[i] = 0;
    __syncthreads();
    for (int first = int(threadIdx.x) * kScoresOfThread; first < num_keys; first += kScoresAtOnce)
      RanksOfThread(scores, num_keys, first).for_each([&](int, unsigned rank) {
        if ((rank & known) == prefix) atomicAdd(&counts[rank >> shift & (kDigits - 1)], 1);
      });
    __syncthreads();
    if (int(threadIdx.x) < kWarp) choose_digit(chosen, counts, num_wanted);
    __syncthreads();
    prefix |= unsigned(chosen.digit) << shift, known |= unsigned(kDigits - 1) << shift;
    num_wanted = chosen.num_wanted;
    if (chosen.takes_all) break;  // whatever the other digits are, no rank of this prefix is below it
  }
  return {prefix, num_wanted};
}

// A block to each row.
__global__ void __launch_bounds__(kSelectThreads) select_highest_kernel(const Selection call) {
  __shared__ int of_warps[kSelectWarps];
  follow();
  const int row_index = call.first_row + int(blockIdx.x), me = int(threadIdx.x);
  const KeysOfRow row = call.rows[row_index];
  int32_t* const to = call.selected + int64_t(row_index) * call.most;
  if (row.num_keys <= call.most) {
    for (int i = me; i < call.most; i += kSelectThreads) to[i] = i < row.num_keys ? call.pool_row(row, i) : -1;
    return;
  }
  const float* const scores = call.scores + row.scores;
  const Threshold threshold = threshold_of(scores, row.num_keys, call.most);
  // Counts of those above, and in the upper half of a word of equals: both fit.
  static_assert(kScoresAtOnce < 1 << 15);
  const auto kind = [&](unsigned rank) { return rank > threshold.rank ? 1 : rank == threshold.rank ? 1 << 16 : 0; };
  int above = 0, equal = 0;  // of the keys so far
  for (int first = 0; above + min(equal, threshold.num_equal) < call.most; first += kScoresAtOnce) {
    const RanksOfThread mine(scores, row.num_keys, first + me * kScoresOfThread);
    int own = 0;
    mine.for_each([&](int, unsigned rank) { own += kind(rank); });
    int before = sum_up_to(own);
    if (me % kWarp == kWarp - 1) of_warps[me / kWarp] = before;
    before -= own;
    __syncthreads();
    int all = 0;
    for (int w = 0; w < kSelectWarps; ++w) {
      if (w == me / kWarp) before += all;
      all += of_warps[w];
    }
    int own_above = above + (before & 0xffff), own_equal = equal + (before >> 16);
    mine.for_each([&](int key, unsigned rank) {
      const int at = own_above + min(own_equal, threshold.num_equal), is = kind(rank);
      if (is == 1 || (is != 0 && own_equal < threshold.num_equal)) to[at] = call.pool_row(row, key);
      own_above += is & 0xffff, own_equal += is >> 16;
    });
    above += all & 0xffff, equal += all >> 16;
    __syncthreads();
  }
}

template <class T, class P, RowCodes kCodes>
void select_by_scores(Stream& stream, const SelectKeysArgs& args, int64_t most_scores) {
  // As in paged_attention.cu.
  constexpr bool uses_tensor_cores = !std::is_same_v<T, float> && (kCodes != RowCodes::none || std::is_same_v<T, P>);
  using Tile = std::conditional_t<uses_tensor_cores, typename TileOf<T, kTileKeys>::Type, PlainTile<kTileKeys>>;
  using Keys = PagedRows<P, kCodes, false>;

  const int64_t heads = args.q.dim(1), most = args.selected.dim(1), block_tokens = args.keys.dim(1);
  const ListedSequences listed = list_sequences({args.sequences, size_t(args.num_sequences)}, block_tokens);
  const SelectPlan plan = plan_selection(listed.sequences, most, rows_of_tile(heads, Tile::kRows), most_scores);
  PackedArrays arrays;
  const size_t blocks_at = arrays.add(listed.blocks), rows_at = arrays.add(plan.rows),
               tiles_at = arrays.add(plan.tiles);
  const std::byte* const device = upload(stream, arrays.data(), int64_t(arrays.size()));
  const Tensor scores = plan.num_scores
                            ? stream.allocator().empty(DType::f32, {room_for_scores(plan.num_scores, most_scores)})
                            : Tensor();

  ScoreCall<T> score{.q = head_rows<const T>(args.q, int(heads))};
  score.weights = device_data<float>(args.weights), score.scores = device_data<float>(scores);
  score.rows = reinterpret_cast<const KeysOfRow*>(device + rows_at);
  score.blocks = reinterpret_cast<const int32_t*>(device + blocks_at), score.heads = int(heads);
  Selection select{.selected = device_data<int32_t>(args.selected),
                   .scores = score.scores,
                   .rows = score.rows,
                   .blocks = score.blocks};
  select.most = int(most), select.block_tokens = int(block_tokens);
  const Keys keys = paged_rows<P, kCodes, false>(args.keys, args.q.dim(2), block_tokens);
  for (const SelectChunk& chunk : plan.chunks) {
    score.tiles = reinterpret_cast<const ScoreTile*>(device + tiles_at) + chunk.tile_begin;
    score.num_tiles = chunk.tile_end - chunk.tile_begin;
    launch_following(stream, score_keys_kernel<Tile, T, Keys>,
                     over_tiles(size_t(score.num_tiles), int(blocks_of_keys(chunk.longest))), score, keys);
    select.first_row = chunk.row_begin;
    launch_following(stream, select_highest_kernel,
                     {.blocks_x = unsigned(chunk.row_end - chunk.row_begin), .threads = kSelectThreads}, select);
  }
}

}  // namespace

void select_keys_in_chunks(Stream& stream, const SelectKeysArgs& args, int64_t most_scores) {
  shapes::check_select_keys(args);
  with_float("select_keys", args.q, [&]<class T>() {
    switch (args.codes) {
      case RowCodes::int8: return select_by_scores<T, uint8_t, RowCodes::int8>(stream, args, most_scores);
      case RowCodes::fp8: return select_by_scores<T, uint8_t, RowCodes::fp8>(stream, args, most_scores);
      case RowCodes::none: break;
    }
    with_any_float("select_keys", args.keys,
                   [&]<class P>() { select_by_scores<T, P, RowCodes::none>(stream, args, most_scores); });
  });
}

void select_keys(Stream& stream, const SelectKeysArgs& args) { select_keys_in_chunks(stream, args, kMostScores); }

}  // namespace weft::cuda
