// Products whose two operands are rounded to E4M3 in groups of 128 along k: as codes with their scales where the
// library multiplies those, else as bf16 on the grid of float8_groups.h. Memory bounds the passes over the operands.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/float8.cuh"
#include "weft/kernels/cuda/float8_way.h"
#include "weft/kernels/cuda/gemm.h"
#include "weft/kernels/cuda/matmul.h"
#include "weft/kernels/cuda/reduce.cuh"
#include "weft/kernels/float8_groups.h"

namespace weft::cuda {
namespace {

constexpr int kGroup = int(float8_groups::kGroup);
constexpr int kLaneElements = kGroup / kWarp;

// Lines along k: the element `at` of line l is x[l * k + at], or x[at * lines + l] where they run down.
struct Lines {
  const BFloat16* x;
  int64_t lines, k;
};

// What becomes of them: codes [lines, length] with the scale of group g of line l at scales[g * lines + l], zeros
// where x has nothing; or, without codes, numbers on the grid, which lie as x does.
struct RoundedLines {
  uint8_t* codes;
  float* scales;
  int64_t lines, length;
  BFloat16* grid;
};

struct GroupScale {
  float scale, inverse;
};
// As float8_groups::scale_of has it.
__device__ __forceinline__ GroupScale group_scale(unsigned largest) {
  constexpr unsigned kLeast = 127 - 117;
  if (largest >= 0x7f800000u) return {__uint_as_float(0x7fc00000u), 0};
  const unsigned exponent = (largest + 0x1fffffu) >> 23, biased = exponent < kLeast + 8 ? kLeast : exponent - 8;
  return {__uint_as_float(biased << 23), __uint_as_float((254 - biased) << 23)};
}
// Of no number: zeros, which become none by their scale.
__device__ __forceinline__ uint8_t code_of(float x, const GroupScale& s) {
  return s.inverse > 0 ? e4m3_of(x * s.inverse) : uint8_t(0);
}
// Numbers on the grid are bf16's; only what is no number or too large is rounded.
__device__ __forceinline__ void store_on_grid(BFloat16* to, float x, const GroupScale& s) {
  store(to, float_of_e4m3(code_of(x, s)) * s.scale);
}

// Magnitudes are ordered by their bits.
__device__ __forceinline__ unsigned magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// A warp to a group.
template <bool kIsCodes>
__global__ void round_across(RoundedLines out, Lines in) {
  const int64_t groups = out.length / kGroup, warp = first_element() / kWarp;
  if (warp >= out.lines * groups) return;  // the whole warp
  const int64_t line = warp / groups, group = warp % groups;
  const int lane = int(threadIdx.x) % kWarp;
  const int64_t first = group * kGroup + lane * kLaneElements;
  float x[kLaneElements];
  unsigned bits = 0;
  for (int i = 0; i < kLaneElements; ++i) {
    x[i] = line < in.lines && first + i < in.k ? load(in.x + line * in.k + first + i) : 0.0f;
    bits = max(bits, magnitude_bits(x[i]));
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) bits = max(bits, __shfl_xor_sync(kAllLanes, bits, mask));
  const GroupScale s = group_scale(bits);
  if constexpr (kIsCodes) {
    unsigned word = 0;
    for (int i = 0; i < kLaneElements; ++i) word |= unsigned(code_of(x[i], s)) << (8 * i);
    *reinterpret_cast<unsigned*>(out.codes + line * out.length + first) = word;
    if (lane == 0) out.scales[group * out.lines + line] = s.scale;
  } else {
    for (int i = 0; i < kLaneElements; ++i)
      if (first + i < in.k) store_on_grid(out.grid + line * in.k + first + i, x[i], s);
  }
}

constexpr int kTileLines = kWarp, kTileWarps = 8;

// A block to the groups of 32 neighbouring lines, of which codes are turned around in shared memory. A thread to
// every eighth element of a line's group.
template <bool kIsCodes>
__global__ void round_down(RoundedLines out, Lines in) {
  constexpr int kOfThread = kGroup / kTileWarps;
  __shared__ unsigned largest[kTileWarps][kTileLines];
  __shared__ uint8_t tile[kTileLines][kGroup + 4];  // whole words, rows in different banks
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  const int64_t line = int64_t(blockIdx.x) * kTileLines + lane, first = int64_t(blockIdx.y) * kGroup + warp;
  float x[kOfThread];
  unsigned bits = 0;
  for (int i = 0; i < kOfThread; ++i) {
    const int64_t at = first + i * kTileWarps;
    x[i] = line < in.lines && at < in.k ? load(in.x + at * in.lines + line) : 0.0f;
    bits = max(bits, magnitude_bits(x[i]));
  }
  largest[warp][lane] = bits;
  __syncthreads();
  for (int w = 0; w < kTileWarps; ++w) bits = max(bits, largest[w][lane]);
  const GroupScale s = group_scale(bits);
  if constexpr (kIsCodes) {
    for (int i = 0; i < kOfThread; ++i) tile[lane][warp + i * kTileWarps] = code_of(x[i], s);
    if (warp == 0 && line < out.lines) out.scales[int64_t(blockIdx.y) * out.lines + line] = s.scale;
    __syncthreads();
    for (int l = warp; l < kTileLines; l += kTileWarps) {
      const int64_t to = int64_t(blockIdx.x) * kTileLines + l;
      if (to >= out.lines) break;  // the whole warp
      unsigned word = 0;
      for (int i = 0; i < 4; ++i) word |= unsigned(tile[l][lane * 4 + i]) << (8 * i);
      *reinterpret_cast<unsigned*>(out.codes + to * out.length + int64_t(blockIdx.y) * kGroup + lane * 4) = word;
    }
  } else {
    for (int i = 0; i < kOfThread; ++i) {
      const int64_t at = first + i * kTileWarps;
      if (line < in.lines && at < in.k) store_on_grid(out.grid + at * in.lines + line, x[i], s);
    }
  }
}

template <bool kIsCodes>
void round_lines(Stream& stream, const RoundedLines& out, const Tensor& x, bool runs_down) {
  const Lines in{device_data<BFloat16>(x), x.dim(runs_down ? 1 : 0), x.dim(runs_down ? 0 : 1)};
  if (runs_down)
    launch(stream, round_down<kIsCodes>, rounding_down(out.lines, out.length), out, in);
  else
    launch(stream, round_across<kIsCodes>, rounding_across(out.lines, out.length), out, in);
}

Tensor on_grid(Stream& stream, const Tensor& x, bool runs_down) {
  Tensor y = stream.allocator().empty(DType::bf16, x.shape());
  const RoundedLines out{.lines = x.dim(runs_down ? 1 : 0),
                         .length = round_up(x.dim(runs_down ? 0 : 1), int64_t(kGroup)),
                         .grid = device_data<BFloat16>(y)};
  round_lines<false>(stream, out, x, runs_down);
  return y;
}

// Codes and scales of one operand.
struct Coded {
  Coded(Stream& stream, int64_t lines, int64_t length)
      : codes(stream.allocator().empty(DType::u8, {lines, length})),
        scales(stream.allocator().empty(DType::f32, {length / kGroup, lines})) {}
  void round(Stream& stream, const Tensor& x, bool runs_down) const {
    const RoundedLines out{static_cast<uint8_t*>(codes.raw()), device_data<float>(scales), codes.dim(0), codes.dim(1),
                           nullptr};
    round_lines<true>(stream, out, x, runs_down);
  }
  Tensor codes, scales;
};

bool multiply_codes(Stream& stream, const MatmulArgs& args) {
  const int64_t m = args.y.dim(0), n = args.y.dim(1), k = args.a.dim(args.transpose_a ? 0 : 1);
  if (!multiplies_codes(compute_capability(), n)) return false;
  const bool has_more = args.accumulate || args.epilogue.bias || !is_aligned(args.y.raw());
  const RoundedShape shape = rounded_shape(m, k, has_more);
  const Coded a(stream, shape.rows, shape.length), b(stream, n, shape.length);
  const Tensor product = shape.is_in_place ? args.y : stream.allocator().empty(DType::f32, {shape.rows, n});
  const Gemm gemm_of_codes{.y_type = product.dtype(),
                           .m = shape.rows,
                           .n = n,
                           .k = shape.length,
                           .transpose_b = true,
                           .y = product.raw(),
                           .y_stride = n,
                           .a = a.codes.raw(),
                           .b = b.codes.raw(),
                           .scales = CodeScales::blocks,
                           .a_scales = device_data<float>(a.scales),
                           .b_scales = device_data<float>(b.scales)};
  if (!can_gemm(gemm_of_codes)) return false;
  a.round(stream, args.a, args.transpose_a);
  b.round(stream, args.b, !args.transpose_b);
  gemm(stream, gemm_of_codes);
  finish_product(stream, args, product);
  return true;
}

}  // namespace

void matmul_rounded(Stream& stream, const MatmulArgs& args) {
  if (multiply_codes(stream, args)) return;
  MatmulArgs rounded = args;
  rounded.a = on_grid(stream, args.a, args.transpose_a);
  rounded.b = on_grid(stream, args.b, !args.transpose_b);
  rounded.float8 = false;
  matmul(stream, rounded);
}

}  // namespace weft::cuda
