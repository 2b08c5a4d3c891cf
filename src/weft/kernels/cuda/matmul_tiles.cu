// Products of groups of rows on tensor cores, of all groups in one launch: for groups that fill a card only together,
// as those of many small experts do. A block makes a tile of one group's result; tiles of both operands come to
// shared memory while those before them are multiplied. Source: Dao et al., "FlashAttention", 2022, for the copies;
// NVIDIA, CUTLASS, "Efficient GEMM in CUDA", for the tiles of blocks and warps.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/group_rows.h"
#include "weft/kernels/cuda/matmul.h"
#include "weft/kernels/cuda/matmul_epilogue.cuh"
#include "weft/kernels/cuda/tensor_cores.cuh"
#include "weft/kernels/cuda/tiles_shape.h"
#include "weft/kernels/grouped_matmul.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

// y = a b^T, a b, or a^T b.
enum class TileForm : uint8_t { forward, backward, gradient };

constexpr int kTileDepth = 32;  // elements along k that come together
constexpr int kTileUnit = 8;    // elements in 16 bytes
// Threads of a block, whose warps lie two by two: the larger a warp's part of a tile, the less it reads for a
// product.
constexpr int kTileBlock = 128, kTileRowWarps = 2, kTileColWarps = 2, kWarpCols = kTileCols / kTileColWarps;

// Lines of an operand: rows of a, columns of b. Those from `base` on are `count`, of `depth` elements along k.
template <class T>
struct TileLines {
  const T* base;
  int64_t stride;  // from a line to the next where elements along k are neighbours, else from one of k to the next
  int64_t count, depth;
};

// kLines lines of kTileDepth elements in shared memory, in units of 16 bytes. Where elements along k are neighbours a
// row of it is a line, else it is one k of all lines. Units of a row change places, so that the eight rows of a
// matrix of ldmatrix have all banks.
template <int kLines, bool kAlongK>
struct TilePart {
  static constexpr int kUnitsOfRow = (kAlongK ? kTileDepth : kLines) / kTileUnit;
  static constexpr int kUnits = kLines * kTileDepth / kTileUnit;
  static __device__ __forceinline__ int place(int row, int unit) {
    return row * kUnitsOfRow + (unit ^ (kAlongK ? row / 2 % 4 : row % 8));
  }
};

// A thread's units of a part, which are kRowsApart rows of shared memory apart, step by step along k. Zeros stand
// where lines or k end.
template <class T, int kLines, bool kAlongK>
class TileFetcher {
 public:
  explicit __device__ __forceinline__ TileFetcher(const TileLines<T>& lines) {
    const int row = int(threadIdx.x) / Part::kUnitsOfRow, unit = int(threadIdx.x) % Part::kUnitsOfRow;
    const int line = kAlongK ? row : unit * kTileUnit, k = kAlongK ? unit * kTileUnit : row;
    place_ = Part::place(row, unit);
    left_ = int(lines.depth) - k;
    advance_ = kAlongK ? kTileDepth : kTileDepth * lines.stride;
    apart_ = kRowsApart * lines.stride;
    from_ = lines.base + (kAlongK ? line * lines.stride + k : k * lines.stride + line);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) bytes_[i] = line + (kAlongK ? i * kRowsApart : 0) < lines.count ? 16 : 0;
  }
  __device__ __forceinline__ void fetch(uint4* part) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i)
      start_copy16(part + place_ + i * kTileBlock, from_ + i * apart_,
                   left_ > (kAlongK ? 0 : i * kRowsApart) ? bytes_[i] : 0);
    from_ += advance_;
    left_ -= kTileDepth;
  }

 private:
  using Part = TilePart<kLines, kAlongK>;
  static constexpr int kCopies = Part::kUnits / kTileBlock, kRowsApart = kTileBlock / Part::kUnitsOfRow;
  static_assert(kCopies * kTileBlock == Part::kUnits && kRowsApart % 8 == 0);
  const T* from_;
  int64_t apart_, advance_;
  int bytes_[kCopies], place_, left_;
};

// A warp's lines of a part from `line` on, a multiple of 32, sixteen at a time by 16 elements along k, as
// multiply_add takes them: of a, whose second word is the next eight lines, or two times those of b, whose second
// word is the next eight k.
template <int kLines, bool kAlongK, bool kIsA>
class TileReader {
 public:
  explicit __device__ __forceinline__ TileReader(int line) {
    const int lane = int(threadIdx.x) % kWarp, matrix = lane / 8;
    line += 8 * (kIsA ? matrix % 2 : matrix / 2);
    const int k = 8 * (kIsA ? matrix / 2 : matrix % 2);
    first_ = kAlongK ? Part::place(line + lane % 8, k / kTileUnit) : Part::place(k + lane % 8, line / kTileUnit);
  }
  // The lines from 16 i on and the elements from 16 k on.
  __device__ __forceinline__ void read(unsigned (&to)[4], const uint4* part, int i, int k) const {
    if constexpr (kAlongK)
      load_matrices(to, part + (first_ ^ 2 * k) + 16 * i * Part::kUnitsOfRow);
    else
      load_transposed(to, part + (first_ ^ 2 * i) + 16 * k * Part::kUnitsOfRow);
  }

 private:
  using Part = TilePart<kLines, kAlongK>;
  int first_;
};

template <class T>
struct TiledProducts {
  const T *a, *b;
  Finish finish;
  int64_t m, n, k;  // of gradients m and n, of products n and k
  const GroupRows* groups;
  unsigned col_tiles;  // of blockIdx.x the first factor
};

// Sums of a warp's 16 rows go through its own part of shared memory, so that whole vectors of a row are finished.
struct TileRows {
  static constexpr int kStride = kWarpCols + 8;  // pairs of half a warp are in different banks
  float x[16][kStride];
  static constexpr int kVectorsOfRow = kWarpCols / kTileUnit;

  __device__ __forceinline__ void put(const float (&sums)[kWarpCols / 8][4]) {
    const int lane = int(threadIdx.x) % kWarp;
#pragma unroll
    for (int j = 0; j < kWarpCols / 8; ++j)
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(&x[lane / 4 + 8 * half][8 * j + lane % 4 * 2]) =
            make_float2(sums[j][2 * half], sums[j][2 * half + 1]);
    __syncwarp();
  }
  // visit(row, first column, values) of this lane's vectors.
  template <class Visit>
  __device__ __forceinline__ void each_vector(Visit&& visit) {
#pragma unroll 1
    for (int i = int(threadIdx.x) % kWarp; i < 16 * kVectorsOfRow; i += kWarp) {
      const int row = i / kVectorsOfRow, col = i % kVectorsOfRow * kTileUnit;
      float values[kTileUnit];
      load_n(values, &x[row][col]);
      visit(row, col, values);
    }
    __syncwarp();
  }
};

// Of what a form's products can have for an epilogue (can_be_tiled).
template <TileForm kForm, int kWidth>
__device__ __forceinline__ void finish_tile(const Finish& e, int64_t at, int64_t col, float (&x)[kWidth]) {
  constexpr Epilogue::Kind kNone = Epilogue::Kind::none;
  constexpr bool kIsForward = kForm == TileForm::forward;
  constexpr auto kActivate = kIsForward ? Epilogue::Kind::activate : Epilogue::Kind::activate_backward;
  constexpr auto kGated = kIsForward ? Epilogue::Kind::gated : Epilogue::Kind::gated_backward;
  if (kForm == TileForm::gradient || e.kind == kNone) return finish_as<kNone>(e, at, col, x);
  e.kind == kActivate ? finish_as<kActivate>(e, at, col, x) : finish_as<kGated>(e, at, col, x);
}

// An element is summed in an order that depends on k alone, or of a gradient on its group's rows.
template <class T, TileForm kForm, int kRows>
__global__ void __launch_bounds__(kTileBlock, 2) tiles_kernel(const TiledProducts<T> t) {
  using N = typename NativeOf<T>::Type;
  constexpr bool kIsGradient = kForm == TileForm::gradient;
  constexpr bool kAIsAlongK = !kIsGradient, kBIsAlongK = kForm == TileForm::forward;
  constexpr int kUnitsOfA = TilePart<kRows, kAIsAlongK>::kUnits,
                kUnits = kUnitsOfA + TilePart<kTileCols, kBIsAlongK>::kUnits;
  constexpr int kStages = kRows == kMostTileRows ? 3 : 4;
  constexpr int kWarpRows = kRows / kTileRowWarps;
  static_assert(sizeof(TileRows) * kTileBlock / kWarp <= sizeof(uint4) * kStages * kUnits);
  __align__(128) __shared__ uint4 memory[kStages][kUnits];

  const GroupRows of = t.groups[blockIdx.y];
  if (!kIsGradient && of.count == 0) return;
  const int64_t first_row = int64_t(blockIdx.x / t.col_tiles) * kRows;
  const int64_t first_col = int64_t(blockIdx.x % t.col_tiles) * kTileCols;
  TileLines<T> a, b;
  if constexpr (kIsGradient) {
    a = {t.a + of.first * t.m + first_row, t.m, t.m - first_row, of.count};
    b = {t.b + of.first * t.n + first_col, t.n, t.n - first_col, of.count};
  } else {
    const T* const matrix = t.b + of.group * t.n * t.k;
    a = {t.a + of.first * t.k, t.k, of.count, t.k};
    if constexpr (kForm == TileForm::forward)
      b = {matrix + first_col * t.k, t.k, t.n - first_col, t.k};
    else
      b = {matrix + first_col, t.n, t.n - first_col, t.k};
  }
  const int steps = int((a.depth + kTileDepth - 1) / kTileDepth);
  TileFetcher<T, kRows, kAIsAlongK> fetch_a(a);
  TileFetcher<T, kTileCols, kBIsAlongK> fetch_b(b);
  const auto fetch = [&](int step, uint4* stage) {
    if (step < steps) fetch_a.fetch(stage), fetch_b.fetch(stage + kUnitsOfA);
    end_copy_group();
  };
  for (int step = 0; step < kStages - 1; ++step) fetch(step, memory[step]);

  const int warp = int(threadIdx.x) / kWarp;
  const int warp_row = warp / kTileColWarps * kWarpRows, warp_col = warp % kTileColWarps * kWarpCols;
  const TileReader<kRows, kAIsAlongK, true> read_a(warp_row);
  const TileReader<kTileCols, kBIsAlongK, false> read_b(warp_col);
  const bool has_rows = warp_row < a.count;  // else others have what this warp would read of shared memory
  float sums[kWarpRows / 16][kWarpCols / 8][4] = {};
  for (int step = 0, here = 0, free = kStages - 1; step < steps; ++step) {
    wait_for_copies<kStages - 2>();
    __syncthreads();  // all have this step's, and are done with what the next fetch replaces
    fetch(step + kStages - 1, memory[free]);
    const uint4* const stage = memory[here];
#pragma unroll
    for (int k = 0; k < kTileDepth / 16 && has_rows; ++k) {
      unsigned x[kWarpRows / 16][4], w[kWarpCols / 16][4];
#pragma unroll
      for (int i = 0; i < kWarpRows / 16; ++i) read_a.read(x[i], stage, i, k);
#pragma unroll
      for (int j = 0; j < kWarpCols / 16; ++j) read_b.read(w[j], stage + kUnitsOfA, j, k);
#pragma unroll
      for (int i = 0; i < kWarpRows / 16; ++i)
#pragma unroll
        for (int j = 0; j < kWarpCols / 8; ++j)
          multiply_add<N>(sums[i][j], x[i][0], x[i][1], x[i][2], x[i][3], w[j / 2][j % 2 * 2],
                          w[j / 2][j % 2 * 2 + 1]);
    }
    here = here + 1 == kStages ? 0 : here + 1;
    free = free + 1 == kStages ? 0 : free + 1;
  }

  __syncthreads();  // stages are free
  TileRows& rows = reinterpret_cast<TileRows*>(memory)[warp];
  const int64_t y_row = kIsGradient ? of.group * t.m + first_row : of.first;
#pragma unroll 1
  for (int at = warp_row; at < warp_row + kWarpRows; at += 16) {
    rows.put(sums[0]);
    rows.each_vector([&](int row, int col, float(&x)[kTileUnit]) {
      if (at + row >= a.count || warp_col + col >= b.count) return;
      const int64_t y_col = first_col + warp_col + col, to = (y_row + at + row) * t.n + y_col;
      finish_tile<kForm>(t.finish, to, of.group * t.n + y_col, x);
    });
#pragma unroll
    for (int i = 1; i < kWarpRows / 16; ++i)  // their place is known when this is compiled
      for (int j = 0; j < kWarpCols / 2; ++j) sums[i - 1][j / 4][j % 4] = sums[i][j / 4][j % 4];
  }
}

bool is_of_16_bits(DType type) { return type == DType::bf16 || type == DType::f16; }

// Whether operands and results are vectors of 16 bytes throughout.
template <class Args>
bool is_in_units(const Args& args) {
  return is_of_16_bits(args.a.dtype()) && args.b.dtype() == args.a.dtype() && !args.float8 && args.a.dim(1) > 0 &&
         args.a.dim(1) % kTileUnit == 0 && args.y.numel() > 0 &&
         args.y.dim(args.y.shape().rank() - 1) % kTileUnit == 0 && args.b.device() == args.y.device() &&
         are_aligned(args.a, args.b, args.y);
}
bool can_be_tiled(const GroupedMatmulArgs& args) {
  const Epilogue& e = args.epilogue;
  const bool is_backward = e.kind == Epilogue::Kind::activate_backward || e.kind == Epilogue::Kind::gated_backward;
  return args.b && !args.blocks_b && !args.nf4_b && is_in_units(args) &&
         (e.kind == Epilogue::Kind::none || is_backward != args.transpose_b) &&
         are_aligned(e.bias, e.act, e.gate, e.up, e.pre, e.dgate);
}

// What blockIdx.y stands for, in memory of the device.
struct TiledGroups {
  const GroupRows* runs;
  int64_t count;
};

template <class T, TileForm kForm, int kRows>
void run_tiles(Stream& stream, TiledProducts<T> t, const TiledGroups& groups) {
  t.groups = groups.runs;
  t.col_tiles = unsigned(ceil_div(t.n, kTileCols));
  const int64_t row_tiles = kForm == TileForm::gradient ? ceil_div(t.m, kRows) : 1;
  launch(stream, tiles_kernel<T, kForm, kRows>,
         {.blocks_x = unsigned(t.col_tiles * row_tiles), .blocks_y = unsigned(groups.count), .threads = kTileBlock},
         t);
}

template <class T, int kRows>
void run_tiles(Stream& stream, const GroupedMatmulArgs& args, const TiledGroups& groups) {
  const TiledProducts<T> t{.a = device_data<T>(args.a),
                           .b = device_data<T>(args.b),
                           .finish = finish_of(args),
                           .m = 0,
                           .n = args.y.dim(1),
                           .k = args.a.dim(1),
                           .groups = nullptr,
                           .col_tiles = 0};
  args.transpose_b ? run_tiles<T, TileForm::forward, kRows>(stream, t, groups)
                   : run_tiles<T, TileForm::backward, kRows>(stream, t, groups);
}

template <int kRows>
void run_tiles(Stream& stream, const GroupedMatmulArgs& args, const TiledGroups& groups) {
  args.a.dtype() == DType::bf16 ? run_tiles<BFloat16, kRows>(stream, args, groups)
                                : run_tiles<Float16, kRows>(stream, args, groups);
}

}  // namespace

bool matmul_tiles(Stream& stream, std::span<const GroupedMatmulArgs> products) {
  const GroupedMatmulArgs& first = products[0];
  if (first.groups || !std::all_of(products.begin(), products.end(), can_be_tiled)) return false;
  const int64_t all = first.a.dim(0), num_groups = first.b.dim(0);
  const int64_t mean = first.runs ? ceil_div(all, num_groups) : mean_rows(first.starts);
  const int64_t rows = first.runs ? run_rows(all, num_groups) : tile_rows(mean);
  if (rows < kFewestTileRows) return false;
  for (const GroupedMatmulArgs& p : products)
    if (!gain_in_tiles(mean, p.y.dim(1), p.a.dim(1), compute_capability())) return false;
  TiledGroups groups{runs_of(first.runs), most_runs(all, num_groups)};
  if (!first.runs) {
    const std::vector<GroupRows> cut = cut_groups(first.starts, rows);
    groups = {upload(stream, cut.data(), int64_t(cut.size())), int64_t(cut.size())};
  }
  if (groups.count > kMostBlocksY) return false;
  for (const GroupedMatmulArgs& p : products) {
    shapes::check_matmul(of_group(p, 0, 1, 0));  // as all others
    rows == kFewestTileRows ? run_tiles<kFewestTileRows>(stream, p, groups)
                            : run_tiles<kMostTileRows>(stream, p, groups);
  }
  return true;
}

bool gradient_tiles(Stream& stream, const GroupedGradientArgs& args) {
  const int64_t m = args.a.dim(1), n = args.b.dim(1);
  const std::vector<GroupRows> wholes = whole_groups(args.starts, !args.accumulate);
  if (!is_in_units(args) || int64_t(wholes.size()) > kMostBlocksY ||
      !gain_in_tiles(m, n, mean_rows(args.starts), compute_capability()))
    return false;
  if (args.y.dtype() != DType::f32 && args.y.dtype() != args.a.dtype()) return false;
  if (wholes.empty()) return true;
  const TiledGroups groups{upload(stream, wholes.data(), int64_t(wholes.size())), int64_t(wholes.size())};
  const auto of = [&]<class T>() {
    const TiledProducts<T> t{.a = device_data<T>(args.a),
                             .b = device_data<T>(args.b),
                             .finish = finish_of(MatmulArgs{.y = args.y, .accumulate = args.accumulate}),
                             .m = m,
                             .n = n,
                             .k = 0,
                             .groups = nullptr,
                             .col_tiles = 0};
    run_tiles<T, TileForm::gradient, kMostTileRows>(stream, t, groups);
  };
  args.a.dtype() == DType::bf16 ? of.template operator()<BFloat16>() : of.template operator()<Float16>();
  return true;
}

bool multiplies_runs(int64_t rows, int64_t groups, int64_t n, int64_t k, bool is_in_blocks) {
  if (groups == 0 || most_runs(rows, groups) > kMostBlocksY) return false;
  const bool are_few = run_rows(rows, groups) < kFewestTileRows;
  if (is_in_blocks) return are_few;
  return n % kTileUnit == 0 && k % kTileUnit == 0 &&
         (are_few || gain_in_tiles(ceil_div(rows, groups), n, k, compute_capability()));
}

}  // namespace weft::cuda
