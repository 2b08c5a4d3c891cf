// FewProducts: products of one a and of few rows that one launch makes, and which block of threads makes what.
#pragma once
#include <span>

#include "weft/kernels/cuda/group_rows.h"
#include "weft/kernels/cuda/matmul_epilogue.cuh"
#include "weft/kernels/cuda/matmul_shape.h"

namespace weft::cuda {

// Whose rows: in memory of the device, of each blockIdx.y a chunk, where none is a chunk of no rows; or the group of
// a row. Null both: all rows are of one matrix.
struct FewGroups {
  const GroupRows* chunks = nullptr;
  const int32_t* row_groups = nullptr;
  int64_t count = 1;  // of blockIdx.y
  int most = 1;       // rows of a chunk

  __device__ __forceinline__ bool is_of_groups() const { return chunks || row_groups; }
  __device__ __forceinline__ GroupRows here() const {
    const int at = int(blockIdx.y);
    return chunks ? chunks[at] : row_groups ? GroupRows{at, 1, row_groups[at]} : GroupRows{0, most, 0};
  }
};

// Weight: [n, k] as kernels read it, or a stack of such.
template <class Weight>
struct FewProducts {
  struct Product {
    Weight b;
    Finish finish;
    int64_t n;
  } products[kMostMatmulsOfOneA];
  // Blocks from first_block on make columns of `count` products from `first` on, of one width: a gate is there when
  // its product wants it, since one thread makes both.
  struct Part {
    int first, count;
    unsigned first_block;
  } parts[kMostMatmulsOfOneA];
  int num_parts;
  FewGroups groups;

  // The part of this block, whose columns begin with first_column.
  __device__ __forceinline__ Part here() const {
    int i = 0;
    while (i + 1 < num_parts && blockIdx.x >= parts[i + 1].first_block) ++i;
    return parts[i];
  }
  static __device__ __forceinline__ int64_t first_column(const Part& part, int columns) {
    return int64_t(blockIdx.x - part.first_block) * columns;
  }
};

// shape: that of the launch, whose threads share `chunks` of each column and multiply `vectors` rows.
// weight_of(args): a Weight. Args: MatmulArgs or GroupedMatmulArgs.
template <class Weight, class Args, class WeightOf>
FewProducts<Weight> few_products(LaunchShape& shape, std::span<const Args> all, const FewGroups& groups,
                                 int64_t chunks, int vectors, WeightOf&& weight_of) {
  FewProducts<Weight> few{.products = {}, .parts = {}, .num_parts = 0, .groups = groups};
  shape = over_columns(0, chunks, vectors);
  shape.blocks_y = unsigned(groups.count);
  for (size_t i = 0; i < all.size(); ++i) {
    const Epilogue& e = all[i].epilogue;
    few.products[i] = {weight_of(all[i]), finish_of(all[i]), all[i].y.dim(1)};
    if (i > 0 && e.kind == Epilogue::Kind::gated && e.gate.raw() == all[i - 1].y.raw()) {
      ++few.parts[few.num_parts - 1].count;
      continue;
    }
    few.parts[few.num_parts++] = {int(i), 1, shape.blocks_x};
    shape.blocks_x += over_columns(all[i].y.dim(1), chunks, vectors).blocks_x;
  }
  return few;
}

}  // namespace weft::cuda
