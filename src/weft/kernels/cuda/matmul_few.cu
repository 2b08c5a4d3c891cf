// Dense products of a few rows, as in decoding: memory bounds them. A block of threads reads a few rows of the weight
// once and keeps a sum to each row of a; products of one a are one launch.
#include <algorithm>

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/matmul.h"
#include "weft/kernels/cuda/matmul_epilogue.cuh"
#include "weft/kernels/cuda/matmul_shape.h"
#include "weft/kernels/cuda/reduce.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

constexpr int kMostRows = 8, kElements = 8;  // elements of 16 bits are read eight at a time

template <class T>
struct FewRows {
  const T* a;  // [m, k]
  int m;
  int64_t k;
  struct Product {
    const T* b;  // [n, k]
    Finish finish;
    int64_t n;
  } products[kMostMatmulsOfOneA];
  // Blocks from first_block on make columns of `count` products from `first` on, of one width: a gate is there when
  // its product wants it, since one thread makes both.
  struct Group {
    int first, count;
    unsigned first_block;
  } groups[kMostMatmulsOfOneA];
  int num_groups;
};

// An element of y is summed in an order that depends on k alone.
template <class T, int kRows, int kColumns>
__device__ __forceinline__ void multiply_columns(const FewRows<T>& f, const typename FewRows<T>::Product& p,
                                                 int64_t first_column, float (*parts)[kRows * kColumns]) {
  constexpr int kSums = kRows * kColumns;
  float sums[kSums] = {};
  const T* weights[kColumns];
  for (int c = 0; c < kColumns; ++c) weights[c] = p.b + min(first_column + c, p.n - 1) * f.k;
#pragma unroll 4
  for (int64_t at = int64_t(threadIdx.x) * kElements; at < f.k; at += int64_t(blockDim.x) * kElements) {
    float w[kColumns][kElements];
    for (int c = 0; c < kColumns; ++c) load_n(w[c], weights[c] + at);
    for (int r = 0; r < kRows; ++r) {
      float x[kElements];
      load_n(x, f.a + min(r, f.m - 1) * f.k + at);
      for (int c = 0; c < kColumns; ++c)
        for (int i = 0; i < kElements; ++i) sums[r * kColumns + c] = fmaf(x[i], w[c][i], sums[r * kColumns + c]);
    }
  }
  for (int i = 0; i < kSums; ++i) sums[i] = warp_sum(sums[i]);
  if (threadIdx.x % kWarp == 0)
    for (int i = 0; i < kSums; ++i) parts[threadIdx.x / kWarp][i] = sums[i];
  __syncthreads();
  if (int(threadIdx.x) < kSums) {
    float sum = 0;
    for (int w = 0; w < int(blockDim.x) / kWarp; ++w) sum += parts[w][threadIdx.x];
    const int64_t row = int(threadIdx.x) / kColumns, col = first_column + int(threadIdx.x) % kColumns;
    if (row < f.m && col < p.n) finish(p.finish, row * p.n + col, col, sum);
  }
  __syncthreads();
}

template <class T, int kRows, int kColumns>
__global__ void __launch_bounds__(kMostVectorThreads) multiply_few_kernel(const FewRows<T> f) {
  __shared__ float parts[kMostVectorThreads / kWarp][kRows * kColumns];
  int g = 0;
  while (g + 1 < f.num_groups && blockIdx.x >= f.groups[g + 1].first_block) ++g;
  const typename FewRows<T>::Group group = f.groups[g];
  const int64_t first_column = int64_t(blockIdx.x - group.first_block) * kColumns;
  if (threadIdx.x < unsigned(kColumns))
    for (int i = group.first; i < group.first + group.count; ++i) {
      const typename FewRows<T>::Product& p = f.products[i];
      fetch_ahead(p.b + min(first_column + threadIdx.x, p.n - 1) * f.k, uint32_t(f.k * int64_t(sizeof(T))));
    }
  follow();
  for (int i = group.first; i < group.first + group.count; ++i)
    multiply_columns<T, kRows, kColumns>(f, f.products[i], first_column, parts);
}

bool is_few(const MatmulArgs& args) {
  const int64_t k = args.a.dim(args.transpose_a ? 0 : 1);
  return args.b && !args.blocks_b && !args.nf4_b && !args.float8 && !args.transpose_a && args.transpose_b &&
         args.y.dim(0) <= kMostRows && args.y.numel() > 0 && k > 0 && k % kElements == 0 &&
         (args.a.dtype() == DType::bf16 || args.a.dtype() == DType::f16) && args.b.dtype() == args.a.dtype() &&
         args.b.device() == args.y.device() && are_aligned(args.a, args.b);
}

// Whether the product before makes its gate.
bool follows_gate(const MatmulArgs& args, const MatmulArgs& before) {
  return args.epilogue.kind == Epilogue::Kind::gated && args.epilogue.gate.raw() == before.y.raw();
}

template <class T, int kRows>
void run(Stream& stream, std::span<const MatmulArgs> products) {
  constexpr int kColumns = columns_per_block(kRows);
  FewRows<T> f{.a = device_data<T>(products[0].a),
               .m = int(products[0].y.dim(0)),
               .k = products[0].a.dim(1),
               .products = {},
               .groups = {},
               .num_groups = 0};
  LaunchShape shape = over_columns(0, f.k / kElements, kRows);
  for (size_t i = 0; i < products.size(); ++i) {
    const MatmulArgs& args = products[i];
    f.products[i] = {device_data<T>(args.b), finish_of(args), args.y.dim(1)};
    if (i > 0 && follows_gate(args, products[i - 1])) {
      ++f.groups[f.num_groups - 1].count;
      continue;
    }
    f.groups[f.num_groups++] = {int(i), 1, shape.blocks_x};
    shape.blocks_x += over_columns(args.y.dim(1), f.k / kElements, kRows).blocks_x;
  }
  launch_following(stream, multiply_few_kernel<T, kRows, kColumns>, shape, f);
}

template <class T>
void run(Stream& stream, std::span<const MatmulArgs> products) {
  const int64_t m = products[0].y.dim(0);
  if (m == 1) return run<T, 1>(stream, products);
  if (m == 2) return run<T, 2>(stream, products);
  m <= 4 ? run<T, 4>(stream, products) : run<T, kMostRows>(stream, products);
}

}  // namespace

bool matmul_few(Stream& stream, std::span<const MatmulArgs> products) {
  if (!std::all_of(products.begin(), products.end(), is_few)) return false;
  products[0].a.dtype() == DType::bf16 ? run<BFloat16>(stream, products) : run<Float16>(stream, products);
  return true;
}

void matmuls_of_one_a(Stream& stream, std::span<const MatmulArgs> products) {
  shapes::check_matmuls_of_one_a(products);
  if (products.empty() || matmul_few(stream, products)) return;
  for (const MatmulArgs& args : products) matmul(stream, args);
}

}  // namespace weft::cuda
