// Dense products of a few rows, as in decoding: memory bounds them. A block of threads reads a few rows of the weight
// once and keeps a sum to each row of a; products of one a are one launch, and so are those of all experts.
#include <algorithm>

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/group_rows.h"
#include "weft/kernels/cuda/matmul.h"
#include "weft/kernels/cuda/matmul_epilogue.cuh"
#include "weft/kernels/cuda/matmul_shape.h"
#include "weft/kernels/cuda/reduce.cuh"
#include "weft/kernels/grouped_matmul.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

constexpr int kMostRows = 8, kElements = 8;  // elements of 16 bits are read eight at a time

template <class T>
struct FewRows {
  const T* a;  // [m, k]
  int m;
  int64_t k;
  // Of each blockIdx.y a chunk, where none is a chunk of no rows, or a row and its group; null both: all rows.
  const GroupRows* chunks;
  const int32_t* row_groups;
  __device__ __forceinline__ bool is_of_groups() const { return chunks || row_groups; }
  __device__ __forceinline__ GroupRows chunk() const {
    const int row = int(blockIdx.y);
    return chunks ? chunks[row] : row_groups ? GroupRows{row, 1, row_groups[row]} : GroupRows{0, m, 0};
  }
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
    if (row < chunk.count && col < p.n) finish(p.finish, (chunk.first + row) * p.n + col, col, product);
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
  if (!f.is_of_groups() && threadIdx.x < unsigned(kColumns))
    for (int i = group.first; i < group.first + group.count; ++i) {
      const typename FewRows<T>::Product& p = f.products[i];
      fetch_ahead(p.b + min(first_column + threadIdx.x, p.n - 1) * f.k, uint32_t(f.k * int64_t(sizeof(T))));
    }
  follow();
  const GroupRows chunk = f.chunk();
  if (chunk.count == 0) return;
  for (int i = group.first; i < group.first + group.count; ++i)
    multiply_columns<T, kRows, kColumns>(f, f.products[i], chunk, first_column, parts);
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

// Whether the product before makes its gate.
template <class Args>
bool follows_gate(const Args& args, const Args& before) {
  return args.epilogue.kind == Epilogue::Kind::gated && args.epilogue.gate.raw() == before.y.raw();
}

// What blockIdx.y stands for, in memory of the device: null both: all rows.
struct FewGroups {
  const GroupRows* chunks = nullptr;
  const int32_t* row_groups = nullptr;
  int64_t count = 1;
};

template <class T, int kRows, class Args>
void run(Stream& stream, std::span<const Args> products, const FewGroups& groups) {
  constexpr int kColumns = columns_per_block(kRows);
  FewRows<T> f{.a = device_data<T>(products[0].a),
               .m = int(products[0].y.dim(0)),
               .k = products[0].a.dim(1),
               .chunks = groups.chunks,
               .row_groups = groups.row_groups,
               .products = {},
               .groups = {},
               .num_groups = 0};
  LaunchShape shape = over_columns(0, f.k / kElements, kRows);
  shape.blocks_y = unsigned(groups.count);
  for (size_t i = 0; i < products.size(); ++i) {
    const Args& args = products[i];
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

// most: rows that are multiplied together.
template <class Args>
void run(Stream& stream, std::span<const Args> products, const FewGroups& groups, int64_t most) {
  const auto of = [&]<class T>() {
    if (most == 1) return run<T, 1>(stream, products, groups);
    if (most == 2) return run<T, 2>(stream, products, groups);
    most <= 4 ? run<T, 4>(stream, products, groups) : run<T, kMostRows>(stream, products, groups);
  };
  products[0].a.dtype() == DType::bf16 ? of.template operator()<BFloat16>() : of.template operator()<Float16>();
}

}  // namespace

bool matmul_few(Stream& stream, std::span<const MatmulArgs> products) {
  if (!std::all_of(products.begin(), products.end(), is_few)) return false;
  run(stream, products, FewGroups(), products[0].y.dim(0));
  return true;
}

void matmuls_of_one_a(Stream& stream, std::span<const MatmulArgs> products) {
  shapes::check_matmuls_of_one_a(products);
  if (products.empty() || matmul_few(stream, products)) return;
  for (const MatmulArgs& args : products) matmul(stream, args);
}

bool matmul_few_of_groups(Stream& stream, std::span<const GroupedMatmulArgs> products) {
  const GroupedMatmulArgs& first = products[0];
  const int64_t rows = first.a.dim(0);
  if (!std::all_of(products.begin(), products.end(), is_dense<GroupedMatmulArgs>)) return false;
  FewGroups groups;
  int64_t most = 1;
  if (first.groups) {
    groups = {.row_groups = device_data<int32_t>(first.groups), .count = rows};
  } else if (first.runs) {
    const int64_t num_groups = first.b.dim(0);
    most = run_rows(rows, num_groups);
    if (most > kMostRows) return false;
    groups = {.chunks = runs_of(first.runs), .count = most_runs(rows, num_groups)};
  } else {
    if (mean_rows(first.starts) > kFewRowsOfGroup) return false;
    // Groups of more rows are several chunks, whose weights the card's cache has.
    const std::vector<GroupRows> chunks = cut_groups(first.starts, kMostRows);
    most = std::ranges::max_element(chunks, {}, &GroupRows::count)->count;
    groups = {.chunks = upload(stream, chunks.data(), int64_t(chunks.size())), .count = int64_t(chunks.size())};
  }
  if (groups.count > kMostBlocksY) return false;
  for (const GroupedMatmulArgs& p : products) shapes::check_matmul(of_group(p, 0, 1, 0));  // as all others
  run(stream, products, groups, most);
  return true;
}

}  // namespace weft::cuda
