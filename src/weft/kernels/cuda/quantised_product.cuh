// Products with a weight that is decoded on the way. Few rows: a block of threads to a few columns of y reads the
// weight once, as it lies; memory bounds it. Many rows: the weight is decoded into scratch memory for cuBLASLt.
//
// A weight is a Matrix, whose rows are cut into chunks of eight, counted from the element that is first in memory:
//   kIsFloat, kHasMinus                  as the formats of block_formats.cuh
//   kMostVectors                         rows of a that a thread takes at once: 2, 4 or 8
//   skip, cols                           column c is element skip + c of its row
//   codes(row, chunk) or floats(row, chunk, x)
#pragma once
#include "weft/kernels/cuda/block_formats.cuh"
#include "weft/kernels/cuda/few_products.cuh"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/matmul.h"
#include "weft/kernels/cuda/reduce.cuh"

namespace weft::cuda {

// The rows of a beside the elements of a weight's row, zeros where these are others'. Integers are multiplied with
// integers: a is rounded to 8 bits in blocks of 32, with a scale each.
struct Vectors {
  static constexpr int kBlock = 32;
  const int8_t* codes = nullptr;  // [m, length]
  const float* scales = nullptr;  // [m, length / 32]
  const float* values = nullptr;  // [m, length], instead of these
  int64_t length = 0;
};

template <class T>
__device__ __forceinline__ void load_vector(const T* a, int64_t k, int64_t skip, int64_t at, float (&x)[kChunk]) {
  for (int i = 0; i < kChunk; ++i) {
    const int64_t col = at + i - skip;
    x[i] = col >= 0 && col < k ? load(a + col) : 0.0f;
  }
}

// Four neighbours of a warp share a block. What is no number makes a scale of none.
template <class T>
__global__ void round_vectors(int8_t* codes, float* scales, const T* a, int64_t k, int64_t skip, int64_t length,
                              int64_t num_chunks) {
  follow();
  const int64_t chunk = first_element();
  const int64_t row = chunk * kChunk / length, at = chunk * kChunk % length;
  float x[kChunk] = {};
  if (chunk < num_chunks) load_vector(a + row * k, k, skip, at, x);
  unsigned bits = 0;  // of magnitudes, which they order
  for (int i = 0; i < kChunk; ++i) bits = max(bits, __float_as_uint(x[i]) & 0x7fffffffu);
  bits = max(bits, __shfl_xor_sync(kAllLanes, bits, 1));
  bits = max(bits, __shfl_xor_sync(kAllLanes, bits, 2));
  if (chunk >= num_chunks) return;
  const float largest = __uint_as_float(bits);
  const bool is_zero = largest < 0x1p-100f;  // the reciprocal might not be finite
  const float inverse = is_zero ? 0.0f : 127 / largest;
  unsigned words[2] = {0, 0};
  for (int i = 0; i < kChunk; ++i) {
    const int code = inverse > 0 ? __float2int_rn(x[i] * inverse) : 0;
    words[i / 4] |= (unsigned(code) & 0xff) << (8 * (i % 4));
  }
  *reinterpret_cast<uint2*>(codes + chunk * kChunk) = make_uint2(words[0], words[1]);
  if (at % Vectors::kBlock == 0) scales[chunk * kChunk / Vectors::kBlock] = is_zero ? 0.0f : largest / 127;
}

template <class T>
__global__ void widen_vectors(float* values, const T* a, int64_t k, int64_t skip, int64_t length,
                              int64_t num_chunks) {
  follow();
  const int64_t chunk = first_element();
  if (chunk >= num_chunks) return;
  float x[kChunk];
  load_vector(a + chunk * kChunk / length * k, k, skip, chunk * kChunk % length, x);
  store_n(values + chunk * kChunk, x);
}

// What a thread adds to its sums for one chunk of some of a's rows and of a block's columns.
template <class Matrix, int kVectors, int kColumns>
__device__ __forceinline__ void add_chunk(const Matrix& b, const Vectors& x, const GroupRows& rows, int64_t first_row,
                                          int64_t last_row, unsigned chunk, float (&sums)[kVectors][kColumns]) {
  if constexpr (Matrix::kIsFloat) {
    float w[kColumns][kChunk];
    for (int c = 0; c < kColumns; ++c) floats_of_columns(b, min(first_row + c, last_row), chunk, w[c]);
    for (int v = 0; v < kVectors; ++v) {
      float a[kChunk];
      load_n(a, x.values + (rows.first + min(v, rows.count - 1)) * x.length + int64_t(chunk) * kChunk);
      for (int c = 0; c < kColumns; ++c)
        for (int i = 0; i < kChunk; ++i) sums[v][c] = fmaf(a[i], w[c][i], sums[v][c]);
    }
  } else {
    Codes w[kColumns];
    for (int c = 0; c < kColumns; ++c) w[c] = b.codes(min(first_row + c, last_row), chunk);
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = (rows.first + min(v, rows.count - 1)) * x.length + int64_t(chunk) * kChunk;
      const uint2 a = *reinterpret_cast<const uint2*>(x.codes + at);
      const float scale = x.scales[at / Vectors::kBlock];
      float sum_of_a = 0;
      if constexpr (Matrix::kHasMinus)
        sum_of_a = float(__dp4a(int(a.x), 0x01010101, __dp4a(int(a.y), 0x01010101, 0)));
      for (int c = 0; c < kColumns; ++c) {
        const float dot = float(__dp4a(int(a.x), int(w[c].low), __dp4a(int(a.y), int(w[c].high), 0)));
        float part = w[c].scale * dot;
        if constexpr (Matrix::kHasMinus) part = fmaf(-w[c].minus, sum_of_a, part);
        sums[v][c] = fmaf(scale, part, sums[v][c]);
      }
    }
  }
}

template <int kLeft, int kSums>
__device__ __forceinline__ void exchange_halves(float (&x)[kSums], int& mine, int mask) {
  if constexpr (kLeft > 1) {
    constexpr int kHalf = kLeft / 2;
    const bool keeps_upper = threadIdx.x & unsigned(mask);
    for (int i = 0; i < kHalf; ++i) {
      const float given = keeps_upper ? x[i] : x[i + kHalf];
      if (keeps_upper) x[i] = x[i + kHalf];
      x[i] += __shfl_xor_sync(kAllLanes, given, mask);
    }
    if (keeps_upper) mine += kHalf;
    exchange_halves<kHalf>(x, mine, mask / 2);
  }
}

// The warp's sums of each of x: x[0] becomes that of the x whose number is returned. Half of what is left goes to a
// lane that keeps that half, so that each lane adds few; lanes are joined in the same order however many sums there
// are.
template <int kSums>
__device__ __forceinline__ int warp_sums(float (&x)[kSums]) {
  static_assert(kSums <= kWarp && (kSums & (kSums - 1)) == 0);
  int mine = 0;
  exchange_halves<kSums>(x, mine, kWarp / 2);
  x[0] = lanes_reduce<kWarp / kSums, Plus>(x[0]);
  return mine;
}

// What is whole units of 16 bytes of a row that lies anywhere comes to the cache.
template <class Matrix>
__device__ __forceinline__ void fetch_row_ahead(const Matrix& b, int64_t row) {
  if constexpr (requires { b.row_bytes; }) {
    const auto begin = reinterpret_cast<uintptr_t>(b.blocks + row * b.row_bytes), first = (begin + 15) / 16 * 16,
               end = (begin + uintptr_t(b.row_bytes)) / 16 * 16;
    if (end > first) fetch_ahead(reinterpret_cast<const void*>(first), uint32_t(end - first));
  }
}

// An element of y is summed in an order that depends on the weight's shape alone.
template <class Matrix, int kVectors, int kColumns>
__global__ void __launch_bounds__(kMostVectorThreads) multiply_vectors(const FewProducts<Matrix> few, Vectors x) {
  constexpr int kSums = kVectors * kColumns;
  __shared__ float parts[kMostVectorThreads / kWarp][kSums];
  const auto part = few.here();
  const int64_t first_col = few.first_column(part, kColumns);
  if (!few.groups.is_of_groups() && threadIdx.x < unsigned(kColumns))
    for (int i = part.first; i < part.first + part.count; ++i)
      fetch_row_ahead(few.products[i].b, min(first_col + threadIdx.x, few.products[i].n - 1));
  follow();
  const GroupRows rows = few.groups.here();
  if (rows.count == 0) return;
  for (int i = part.first; i < part.first + part.count; ++i) {
    const auto& [b, e, n] = few.products[i];
    const int64_t group_row = rows.group * n;  // of b, as it lies
    float sums[kVectors][kColumns] = {};
    const auto end = unsigned((b.skip + b.cols + kChunk - 1) / kChunk);
    for (unsigned chunk = unsigned(b.skip) / kChunk + threadIdx.x; chunk < end; chunk += blockDim.x)
      add_chunk(b, x, rows, group_row + first_col, group_row + n - 1, chunk, sums);
    float all[kSums];
    for (int s = 0; s < kSums; ++s) all[s] = sums[s / kColumns][s % kColumns];
    const int mine = warp_sums(all);
    if (threadIdx.x % (kWarp / kSums) == 0) parts[threadIdx.x / kWarp][mine] = all[0];
    __syncthreads();
    if (int(threadIdx.x) < kSums) {
      float product[1] = {};
      for (int w = 0; w < int(blockDim.x) / kWarp; ++w) product[0] += parts[w][threadIdx.x];
      const int64_t row = int(threadIdx.x) / kColumns, col = first_col + int(threadIdx.x) % kColumns;
      if (row < rows.count && col < n) finish(e, (rows.first + row) * n + col, group_row + col, product);
    }
    __syncthreads();
  }
}

// out[rows, cols]: rows [first_row, first_row + rows) of b, columns [first_col, first_col + cols).
template <class Matrix, bool kIsAligned>
__global__ void decode_matrix(Floats out, Matrix b, int64_t first_row, int64_t rows, int64_t first_col,
                              int64_t cols) {
  const int64_t first_chunk = (b.skip + first_col) / kChunk;
  const int64_t row_chunks = (b.skip + first_col + cols + kChunk - 1) / kChunk - first_chunk;
  for (int64_t i = first_element(); i < rows * row_chunks; i += element_stride()) {
    const int64_t row = i / row_chunks;
    const auto chunk = unsigned(first_chunk + i % row_chunks);
    float w[kChunk];
    floats_of_columns(b, first_row + row, chunk, w);
    const int64_t col = int64_t(chunk) * kChunk - b.skip - first_col;
    if constexpr (kIsAligned) {
      store_floats(out, row * cols + col, w);
    } else {
      for (int j = 0; j < kChunk; ++j) {
        const float one[1] = {w[j]};
        if (col + j >= 0 && col + j < cols) store_floats(out, row * cols + col + j, one);
      }
    }
  }
}

// The rows of an a as products take them, made when they are first asked for: products of one a are often of one
// form.
class VectorsOfA {
 public:
  VectorsOfA(Stream& stream, const Tensor& a) : stream_(stream), a_(a) {}

  template <bool kIsFloat>
  const Vectors& of(int64_t skip, int64_t cols) {
    const int64_t length = round_up(skip + cols, Vectors::kBlock);
    if (made_.length == length && skip_ == skip && bool(made_.values) == kIsFloat) return made_;
    made_ = {.length = length}, skip_ = skip;
    const int64_t rows = a_.dim(0), chunks = rows * length / kChunk;
    const LaunchShape shape{.blocks_x = unsigned(ceil_div(chunks, 128)), .threads = 128};
    with_float("matmul", a_, [&]<class T>() {
      if constexpr (kIsFloat) {
        codes_ = stream_.allocator().empty(DType::f32, {rows, length});
        auto* const values = device_data<float>(codes_);
        launch_following(stream_, widen_vectors<T>, shape, values, device_data<T>(a_), cols, skip, length, chunks);
        made_.values = values;
      } else {
        codes_ = stream_.allocator().empty(DType::u8, {rows, length});
        scales_ = stream_.allocator().empty(DType::f32, {rows, length / Vectors::kBlock});
        auto* const codes = static_cast<int8_t*>(codes_.raw());
        auto* const scales = device_data<float>(scales_);
        launch_following(stream_, round_vectors<T>, shape, codes, scales, device_data<T>(a_), cols, skip, length,
                         chunks);
        made_.codes = codes, made_.scales = scales;
      }
    });
    return made_;
  }

 private:
  Stream& stream_;
  const Tensor& a_;
  Tensor codes_, scales_;  // codes_: or values
  Vectors made_;
  int64_t skip_ = 0;
};

// Products with weights that are cut alike, of at most Matrix::kMostVectors rows or of groups of them.
// weight_of(args): the Matrix, [n, k] as it lies, or a stack of them.
template <class Matrix, class Args, class WeightOf>
void multiply_few(Stream& stream, std::span<const Args> products, VectorsOfA& a, const FewGroups& groups,
                  WeightOf&& weight_of) {
  const Matrix b = weight_of(products[0]);
  const Vectors& x = a.of<Matrix::kIsFloat>(b.skip, b.cols);
  const auto of = [&]<int kVectors>() {
    LaunchShape shape;
    const auto few =
        few_products<Matrix>(shape, products, groups, ceil_div(b.skip + b.cols, kChunk), kVectors, weight_of);
    launch_following(stream, multiply_vectors<Matrix, kVectors, columns_per_block(kVectors)>, shape, few, x);
  };
  if (groups.most == 1) return of.template operator()<1>();
  if (groups.most == 2) return of.template operator()<2>();
  if constexpr (Matrix::kMostVectors > 4)
    if (groups.most <= 4) return of.template operator()<4>();
  if constexpr (Matrix::kMostVectors > 2) of.template operator()<Matrix::kMostVectors>();
}

// b as [n, k] or [k, n], as transpose_b says.
template <class Matrix>
void multiply_many(Stream& stream, const MatmulArgs& args, const Matrix& b, bool rounds_f32) {
  const int64_t n = args.y.dim(1), k = args.a.dim(args.transpose_a ? 0 : 1);
  const int64_t step = columns_at_once(n, k, int64_t(size_of(args.a.dtype())));
  const Tensor scratch = stream.allocator().empty(args.a.dtype(), {k * step});
  DenseProduct product(stream, args);
  for (int64_t col = 0; col < n; col += step) {
    const int64_t columns = std::min(step, n - col);
    const int64_t first_row = args.transpose_b ? col : 0, rows = args.transpose_b ? columns : k;
    const int64_t first_col = args.transpose_b ? 0 : col, cols = args.transpose_b ? k : columns;
    const bool is_aligned = cols % kChunk == 0 && (b.skip + first_col) % kChunk == 0;
    launch(stream, is_aligned ? decode_matrix<Matrix, true> : decode_matrix<Matrix, false>,
           over_elements(rows * cols, kChunk), floats_of(scratch), b, first_row, rows, first_col, cols);
    product.multiply(col, columns, scratch.raw(), rounds_f32);
  }
  product.finish();
}

}  // namespace weft::cuda
