// Dense products of a few rows, as in decoding: memory bounds them. A block of threads reads a few rows of the weight
// once and keeps a sum to each row of a; products of one a are one launch, and so are those of all experts.
#include <algorithm>

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/matmul.h"
#include "weft/kernels/cuda/matmul_epilogue.cuh"
#include "weft/kernels/cuda/matmul_shape.h"
#include "weft/kernels/cuda/reduce.cuh"
#include "weft/kernels/grouped_matmul.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

constexpr int kMostRows = 8, kElements = 8;  // elements of 16 bits are read eight at a time

// Rows of a that are multiplied together, with matrix `group` of a stack.
struct FewChunk {
  int32_t first, count, group;
};

template <class T>
struct FewRows {
  const T* a;  // [m, k]
  int m;
  int64_t k;
  // Of each blockIdx.y a chunk, or a row and its group; null both: all rows.
  const FewChunk* chunks;
  const int32_t* row_groups;
  __device__ __forceinline__ bool is_of_groups() const { return chunks || row_groups; }
  __device__ __forceinline__ FewChunk chunk() const {
    const int row = int(blockIdx.y);
    return chunks ? chunks[row] : row_groups ? FewChunk{row, 1, row_groups[row]} : FewChunk{0, m, 0};
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
                                                 const FewChunk& chunk, int64_t first_column,
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
    float sum = 0;
    for (int w = 0; w < int(blockDim.x) / kWarp; ++w) sum += parts[w][threadIdx.x];
    const int64_t row = int(threadIdx.x) / kColumns, col = first_column + int(threadIdx.x) % kColumns;
    if (row < chunk.count && col < p.n) finish(p.finish, (chunk.first + row) * p.n + col, col, sum);
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
  const FewChunk chunk = f.chunk();
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

// What blockIdx.y stands for.
struct FewGroups {
  std::span<const FewChunk> chunks = {};
  Tensor row_groups = {};
  size_t count() const { return row_groups ? size_t(row_groups.numel()) : std::max<size_t>(chunks.size(), 1); }
};

template <class T, int kRows, class Args>
void run(Stream& stream, std::span<const Args> products, const FewGroups& groups) {
  constexpr int kColumns = columns_per_block(kRows);
  FewRows<T> f{.a = device_data<T>(products[0].a),
               .m = int(products[0].y.dim(0)),
               .k = products[0].a.dim(1),
               .chunks = upload(stream, groups.chunks.data(), int64_t(groups.chunks.size())),
               .row_groups = device_data<int32_t>(groups.row_groups),
               .products = {},
               .groups = {},
               .num_groups = 0};
  LaunchShape shape = over_columns(0, f.k / kElements, kRows);
  shape.blocks_y = unsigned(groups.count());
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

// Groups of more rows are several chunks, whose weights the card's cache has.
std::vector<FewChunk> chunks_of(std::span<const int64_t> starts) {
  std::vector<FewChunk> chunks;
  for (size_t g = 0; g + 1 < starts.size(); ++g)
    for (int64_t at = starts[g]; at < starts[g + 1]; at += kMostRows)
      chunks.push_back({int32_t(at), int32_t(std::min<int64_t>(kMostRows, starts[g + 1] - at)), int32_t(g)});
  return chunks;
}

constexpr int64_t kMostBlocksY = 65535;

// Whether a launch for each group would take longer than to read its weights twice.
bool are_few(std::span<const int64_t> starts) {
  constexpr int64_t kMostOfGroup = 16;  // rows in the mean, which are three chunks at most
  int64_t with_rows = 0;
  for (size_t g = 0; g + 1 < starts.size(); ++g) with_rows += starts[g + 1] > starts[g];
  return starts.back() <= kMostOfGroup * with_rows && 3 * with_rows <= kMostBlocksY;
}

// Rows name their groups in memory of the device.
void matmul_named_groups(Stream& stream, std::span<const GroupedMatmulArgs> products, bool are_dense) {
  const Tensor& groups = products[0].groups;
  if (are_dense && groups.numel() <= kMostBlocksY) {
    for (const GroupedMatmulArgs& p : products) shapes::check_matmul(of_group(p, 0, 1, 0));
    return run(stream, products, {.row_groups = groups}, 1);
  }
  std::vector<int32_t> on_host(size_t(groups.numel()));
  stream.queue().copy_to_host(on_host.data(), groups.raw(), groups.bytes());
  matmul_runs<matmuls_of_one_a>(stream, products, on_host.data());
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

void grouped_matmuls(Stream& stream, std::span<const GroupedMatmulArgs> products) {
  check_groups(products);
  if (products[0].a.dim(0) == 0) return;
  const bool are_dense = std::all_of(products.begin(), products.end(), is_dense<GroupedMatmulArgs>);
  if (products[0].groups) return matmul_named_groups(stream, products, are_dense);
  if (!are_dense || !are_few(products[0].starts)) return matmul_runs<matmuls_of_one_a>(stream, products, nullptr);
  const std::vector<FewChunk> chunks = chunks_of(products[0].starts);
  const FewChunk& last = chunks.back();
  for (const GroupedMatmulArgs& p : products)  // as all others
    shapes::check_matmul(of_group(p, last.first, last.count, last.group));
  run(stream, products, {.chunks = chunks}, std::ranges::max_element(chunks, {}, &FewChunk::count)->count);
}

}  // namespace weft::cuda
