// Dense products of a few rows, as in decoding: memory bounds them. A block of threads reads a few rows of the weight
// once and keeps a sum to each row of a; products of one a are one launch, and so are those of all experts.
#include <algorithm>

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/few_products.cuh"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/matmul.h"
#include "weft/kernels/cuda/reduce.cuh"
#include "weft/kernels/grouped_matmul.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

constexpr int kMostRows = 8, kElements = 8;  // elements of 16 bits are read eight at a time

template <class T>
struct FewRows {
  const T* a;  // [rows, k]
  int64_t k;
  FewProducts<const T*> few;
};

// An element of y is summed in an order that depends on k alone.
template <class T, int kRows, int kColumns>
__device__ __forceinline__ void multiply_columns(const FewRows<T>& f,
                                                 const typename FewProducts<const T*>::Product& p,
                                                 const GroupRows& chunk, int64_t first_column,
                                                 float (*parts)[kRows * kColumns]) {
  constexpr int kSums = kRows * kColumns;
  float sums[kSums] = {};
  const T* const a = f.a + chunk.first * f.k;
  const T* weights[kColumns];
  for (int c = 0; c < kColumns; ++c) weights[c] = p.b + (chunk.group * p.n + min(first_column + c, p.n - 1)) * f.k;
#pragma unroll 4
  for (int64_t at = int64_t(threadIdx.x) * kElements; at < f.k; at += int64_t(blockDim.x) * kElements) {
    float w[kColumns][kElements];
    for (int c = 0; c < kColumns; ++c) load_n(w[c], weights[c] + at);
    for (int r = 0; r < kRows; ++r) {
      float x[kElements];
      load_n(x, a + min(r, chunk.count - 1) * f.k + at);
      for (int c = 0; c < kColumns; ++c)
        for (int i = 0; i < kElements; ++i) sums[r * kColumns + c] = fmaf(x[i], w[c][i], sums[r * kColumns + c]);
    }
  }
  for (int i = 0; i < kSums; ++i) sums[i] = warp_sum(sums[i]);
  if (threadIdx.x % kWarp == 0)
    for (int i = 0; i < kSums; ++i) parts[threadIdx.x / kWarp][i] = sums[i];
  __syncthreads();
  if (int(threadIdx.x) < kSums) {
    float product[1] = {};
    for (int w = 0; w < int(blockDim.x) / kWarp; ++w) product[0] += parts[w][threadIdx.x];
    const int64_t row = int(threadIdx.x) / kColumns, col = first_column + int(threadIdx.x) % kColumns;
    if (row < chunk.count && col < p.n)
      finish(p.finish, (chunk.first + row) * p.n + col, chunk.group * p.n + col, product);
  }
  __syncthreads();
}

template <class T, int kRows, int kColumns>
__global__ void __launch_bounds__(kMostVectorThreads) multiply_few_kernel(const FewRows<T> f) {
  __shared__ float parts[kMostVectorThreads / kWarp][kRows * kColumns];
  const auto part = f.few.here();
  const int64_t first_column = f.few.first_column(part, kColumns);
  if (!f.few.groups.is_of_groups() && threadIdx.x < unsigned(kColumns))
    for (int i = part.first; i < part.first + part.count; ++i) {
      const auto& p = f.few.products[i];
      fetch_ahead(p.b + min(first_column + threadIdx.x, p.n - 1) * f.k, uint32_t(f.k * int64_t(sizeof(T))));
    }
  follow();
  const GroupRows chunk = f.few.groups.here();
  if (chunk.count == 0) return;
  for (int i = part.first; i < part.first + part.count; ++i)
    multiply_columns<T, kRows, kColumns>(f, f.few.products[i], chunk, first_column, parts);
}

// Of MatmulArgs and of GroupedMatmulArgs, but for the number of rows.
template <class Args>
bool is_dense(const Args& args) {
  const int64_t k = args.a.dim(1);
  return args.b && !args.blocks_b && !args.nf4_b && !args.float8 && args.transpose_b && args.y.numel() > 0 && k > 0 &&
         k % kElements == 0 && (args.a.dtype() == DType::bf16 || args.a.dtype() == DType::f16) &&
         args.b.dtype() == args.a.dtype() && args.b.device() == args.y.device() && are_aligned(args.a, args.b);
}
bool is_few(const MatmulArgs& args) { return !args.transpose_a && args.y.dim(0) <= kMostRows && is_dense(args); }

template <class T, int kRows, class Args>
void run(Stream& stream, std::span<const Args> products, const FewGroups& groups) {
  const int64_t k = products[0].a.dim(1);
  LaunchShape shape;
  const FewRows<T> f{.a = device_data<T>(products[0].a),
                     .k = k,
                     .few = few_products<const T*>(shape, products, groups, k / kElements, kRows,
                                                   [](const Args& args) { return device_data<T>(args.b); })};
  launch_following(stream, multiply_few_kernel<T, kRows, columns_per_block(kRows)>, shape, f);
}

template <class Args>
void run(Stream& stream, std::span<const Args> products, const FewGroups& groups) {
  const auto of = [&]<class T>() {
    if (groups.most == 1) return run<T, 1>(stream, products, groups);
    if (groups.most == 2) return run<T, 2>(stream, products, groups);
    groups.most <= 4 ? run<T, 4>(stream, products, groups) : run<T, kMostRows>(stream, products, groups);
  };
  products[0].a.dtype() == DType::bf16 ? of.template operator()<BFloat16>() : of.template operator()<Float16>();
}

// Of products of groups. most 0: they have more than few rows.
FewGroups few_groups(Stream& stream, const GroupedMatmulArgs& args, int64_t num_groups) {
  const int64_t rows = args.a.dim(0);
  if (args.groups) return {.row_groups = device_data<int32_t>(args.groups), .count = rows};
  if (args.runs) {
    const int64_t most = run_rows(rows, num_groups);
    return {
        .chunks = runs_of(args.runs), .count = most_runs(rows, num_groups), .most = most > kMostRows ? 0 : int(most)};
  }
  if (mean_rows(args.starts) > kFewRowsOfGroup) return {.most = 0};
  // Groups of more rows are several chunks, whose weights the card's cache has.
  const std::vector<GroupRows> chunks = cut_groups(args.starts, kMostRows);
  return {.chunks = upload(stream, chunks.data(), int64_t(chunks.size())),
          .count = int64_t(chunks.size()),
          .most = std::ranges::max_element(chunks, {}, &GroupRows::count)->count};
}

bool is_in_blocks(const GroupedMatmulArgs& args) { return bool(args.blocks_b) && args.transpose_b; }

}  // namespace

bool matmul_few(Stream& stream, std::span<const MatmulArgs> products) {
  if (!std::all_of(products.begin(), products.end(), is_few)) return false;
  run(stream, products, {.most = int(products[0].y.dim(0))});
  return true;
}

void matmuls_of_one_a(Stream& stream, std::span<const MatmulArgs> products) {
  shapes::check_matmuls_of_one_a(products);
  if (products.empty() || matmul_few(stream, products) || matmul_few_blocks(stream, products)) return;
  for (const MatmulArgs& args : products) matmul(stream, args);
}

bool matmul_few_of_groups(Stream& stream, std::span<const GroupedMatmulArgs> products) {
  const GroupedMatmulArgs& first = products[0];
  const bool are_dense = std::all_of(products.begin(), products.end(), is_dense<GroupedMatmulArgs>);
  if ((!are_dense && !std::all_of(products.begin(), products.end(), is_in_blocks)) || first.y.numel() == 0)
    return false;
  const int64_t num_groups = are_dense ? first.b.dim(0) : first.blocks_b.blocks.dim(0) / first.y.dim(1);
  const FewGroups groups = few_groups(stream, first, num_groups);
  if (groups.most == 0 || groups.count > kMostBlocksY) return false;
  for (const GroupedMatmulArgs& p : products) shapes::check_matmul(of_group(p, 0, 1, 0));  // as all others
  if (!are_dense) return matmul_few_blocks(stream, products, groups);
  run(stream, products, groups);
  return true;
}

}  // namespace weft::cuda
