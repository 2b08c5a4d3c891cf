// Products of many rows with a weight in fp8, as products of codes: a is rounded to E4M3 too, and cuBLASLt multiplies
// at twice the speed of 16 bits. Memory bounds the passes over a and over the weight.
#include "weft/kernels/cuda/block_formats.cuh"
#include "weft/kernels/cuda/float8_way.h"
#include "weft/kernels/cuda/gemm.h"
#include "weft/kernels/cuda/matmul.h"
#include "weft/kernels/cuda/reduce.cuh"

namespace weft::cuda {
namespace {

constexpr int kBlock = int(Float8Shape::kBlock);
constexpr int kBlockElementsOfLane = kBlock / kWarp;

// Codes as they lie: rows of `length`, and the scale of row r, block j at scales[j * pitch + r].
struct Float8Rows {
  uint8_t* codes;
  float* scales;
  int64_t rows, length, pitch;
};

// Four neighbours of a row of a; zeros where there are none.
template <class T>
__device__ __forceinline__ void load_four(const T* a, int64_t m, int64_t k, int64_t skip, int64_t row, int64_t at,
                                          float (&x)[kBlockElementsOfLane]) {
  for (int i = 0; i < kBlockElementsOfLane; ++i) {
    const int64_t col = at + i - skip;
    x[i] = row < m && col >= 0 && col < k ? load(a + row * k + col) : 0.0f;
  }
}

// Of magnitudes, which their bits order: what is no number is the largest of all.
__device__ __forceinline__ unsigned largest_of(const float (&x)[kBlockElementsOfLane], unsigned bits) {
  for (int i = 0; i < kBlockElementsOfLane; ++i) bits = max(bits, __float_as_uint(x[i]) & 0x7fffffffu);
  return bits;
}

struct Scale {
  float scale, inverse;
};
// Of no number: a scale that is none, whose codes are zeros.
__device__ __forceinline__ Scale scale_of(unsigned largest_bits) {
  constexpr float kLargestCode = 448;
  if (largest_bits >= 0x7f800000u) return {__uint_as_float(0x7fc00000u), 0};
  const float largest = __uint_as_float(largest_bits);
  if (largest < 0x1p-100f) return {0, 0};  // the reciprocal might not be finite
  return {largest / kLargestCode, kLargestCode / largest};
}

__device__ __forceinline__ void store_codes(uint8_t* to, const float (&x)[kBlockElementsOfLane], const Scale& s) {
  unsigned word = 0;
  for (int i = 0; i < kBlockElementsOfLane; ++i)
    word |= s.inverse > 0 ? unsigned(e4m3_of(x[i] * s.inverse)) << (8 * i) : 0u;
  *reinterpret_cast<unsigned*>(to) = word;
}

// A warp to a block of 128, or to a whole row, which it then reads twice.
template <class T, bool kOfRows>
__global__ void round_rows(Float8Rows out, const T* a, int64_t m, int64_t k, int64_t skip) {
  const int64_t row_blocks = out.length / kBlock, parts = kOfRows ? 1 : row_blocks;
  const int64_t warp = first_element() / kWarp;
  if (warp >= out.rows * parts) return;  // the whole warp
  const int64_t row = warp / parts, part = warp % parts;
  const int64_t first = kOfRows ? 0 : part, end = kOfRows ? row_blocks : part + 1;
  const int lane = int(threadIdx.x) % kWarp;
  float x[kBlockElementsOfLane];
  unsigned bits = 0;
  for (int64_t j = first; j < end; ++j) {
    load_four(a, m, k, skip, row, j * kBlock + lane * kBlockElementsOfLane, x);
    bits = largest_of(x, bits);
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) bits = max(bits, __shfl_xor_sync(kAllLanes, bits, mask));
  const Scale s = scale_of(bits);
  for (int64_t j = first; j < end; ++j) {
    const int64_t at = j * kBlock + lane * kBlockElementsOfLane;
    if (kOfRows) load_four(a, m, k, skip, row, at, x);
    store_codes(out.codes + row * out.length + at, x, s);
  }
  if (lane == 0) out.scales[part * out.pitch + row] = s.scale;
}

// Rows of a BlockMatrix from `blocks` on. A thread to a chunk of eight.
template <bool kOfRows>
__global__ void unpack_rows(Float8Rows out, const uint8_t* blocks, int64_t row_bytes, int64_t cols, int64_t skip) {
  const int64_t row_chunks = out.length / kChunk;
  for (int64_t i = first_element(); i < out.rows * row_chunks; i += element_stride()) {
    const int64_t row = i / row_chunks, at = i % row_chunks * kChunk, j = at / kBlock;
    const uint8_t* const block = blocks + row * row_bytes + j * Fp8Format::kBytes;
    Words q = load_words(block + 4 + at % kBlock);
    if (at < skip || at + kChunk > skip + cols) {
      unsigned words[2] = {0, 0};
      for (int e = 0; e < kChunk; ++e)
        if (at + e >= skip && at + e < skip + cols) words[e / 4] |= byte_of(q, e) << (8 * (e % 4));
      q = {words[0], words[1]};
    }
    *reinterpret_cast<uint2*>(out.codes + row * out.length + at) = make_uint2(q.low, q.high);
    if (at % kBlock == 0 && (!kOfRows || j == 0)) out.scales[j * out.pitch + row] = load_float(block);
  }
}

}  // namespace

bool matmul_float8(Stream& stream, const MatmulArgs& args) {
  const BlockMatrix& b = args.blocks_b;
  const Float8Way way = float8_way(compute_capability(), b, args.transpose_a);
  if (way == Float8Way::decoded) return false;
  const int64_t m = args.y.dim(0), n = args.y.dim(1);
  const bool is_of_rows = way == Float8Way::row_scales;
  const bool has_more = args.accumulate || args.epilogue.bias || !is_aligned(args.y.raw());
  const Float8Shape shape = float8_shape(way, b, m, has_more);

  Allocator& memory = stream.allocator();
  const Tensor a_codes = memory.empty(DType::u8, {shape.rows, shape.length});
  const Tensor b_codes = memory.empty(DType::u8, {shape.columns, shape.length});
  const Tensor a_scales = memory.empty(DType::f32, {shape.num_scales(way, shape.rows)});
  const Tensor b_scales = memory.empty(DType::f32, {shape.num_scales(way, is_of_rows ? n : shape.columns)});
  const Tensor product = shape.is_in_place ? args.y : memory.empty(DType::f32, {shape.rows, n});
  const auto part = [&](int64_t col, int64_t columns) {
    return Gemm{.y_type = product.dtype(),
                .m = shape.rows,
                .n = columns,
                .k = shape.length,
                .transpose_b = true,
                .y = static_cast<std::byte*>(product.raw()) + size_t(col) * size_of(product.dtype()),
                .y_stride = n,
                .a = a_codes.raw(),
                .b = b_codes.raw(),
                .scales = is_of_rows ? CodeScales::one : CodeScales::blocks,
                .a_scales = device_data<float>(a_scales),
                .b_scales = device_data<float>(b_scales)};
  };
  const int64_t last = n - (n - 1) / shape.columns * shape.columns;
  if (!can_gemm(part(0, shape.columns)) || !can_gemm(part(n - last, last))) return false;

  const Float8Rows a{static_cast<uint8_t*>(a_codes.raw()), device_data<float>(a_scales), shape.rows, shape.length,
                     shape.rows};
  const int64_t warps = shape.rows * (is_of_rows ? 1 : shape.row_blocks());
  with_float("matmul", args.a, [&]<class T>() {
    launch(stream, is_of_rows ? round_rows<T, true> : round_rows<T, false>,
           {.blocks_x = unsigned(ceil_div(warps, int64_t(4))), .threads = 4 * kWarp}, a, device_data<T>(args.a), m,
           b.cols, b.skip);
  });
  for (int64_t col = 0; col < n; col += shape.columns) {
    const int64_t columns = std::min(shape.columns, n - col);
    const Float8Rows w{static_cast<uint8_t*>(b_codes.raw()), device_data<float>(b_scales) + (is_of_rows ? col : 0),
                       columns, shape.length, columns};
    launch(stream, is_of_rows ? unpack_rows<true> : unpack_rows<false>, over_elements(columns * shape.length, kChunk),
           w, static_cast<const uint8_t*>(b.blocks.raw()) + col * b.row_bytes(), b.row_bytes(), b.cols, b.skip);
    gemm(stream, part(col, columns));
  }
  finish_product(
      stream, args, product,
      is_of_rows ? OuterScales{device_data<float>(a_scales), device_data<float>(b_scales)} : OuterScales{});
  return true;
}

}  // namespace weft::cuda
