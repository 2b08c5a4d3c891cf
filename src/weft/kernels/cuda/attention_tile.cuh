// Tiles of attention: products of vectors of heads that a block of four warps keeps in shared memory, chunk by chunk
// of a head, in f32 by plain products and in 16 bits on tensor cores. Source: Dao, "FlashAttention-2", 2023.
//
// A tile is kRows x kCols: of lanes and keys, or of keys and lanes. 16 threads of a warp hold a row together, so that
// sums and maxima over it are shuffles. Where dims, rows or columns end, zeros stand.
#pragma once
#include <mma.h>

#include "weft/kernels/cuda/alignment.h"
#include "weft/kernels/cuda/attention_plan.h"
#include "weft/kernels/cuda/reduce.cuh"

namespace weft::cuda {

constexpr int kRowThreads = 16;  // that hold a row
constexpr int kHeadChunk = 64;   // columns of a head that are in shared memory at once

__device__ __forceinline__ void put(float* to, float x) { *to = x; }
__device__ __forceinline__ void put(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }
__device__ __forceinline__ void put(__half* to, float x) { *to = __float2half_rn(x); }

__device__ __forceinline__ uint4 load16(const void* p) { return *static_cast<const uint4*>(p); }
__device__ __forceinline__ void store16(void* p, uint4 x) { *static_cast<uint4*>(p) = x; }

// The columns of a chunk that begins with `col`, as tensor cores take them.
__device__ __forceinline__ int chunk_width(int dim, int col) { return min(kHeadChunk, (dim - col + 15) / 16 * 16); }

__device__ __forceinline__ float row_sum(float x) { return lanes_reduce<kRowThreads, Plus>(x); }
__device__ __forceinline__ float row_max(float x) { return lanes_reduce<kRowThreads, Larger>(x); }

// The vectors of `group` neighbouring heads of a tensor [rows, heads, dim], row by row: lanes, or keys (group 1).
template <class T>
struct HeadRows {
  static constexpr bool kIsCoded = false, kIsGuarded = false;
  T* base;  // of row 0
  int64_t row_stride;
  int group, dim;
  bool is_aligned;  // 16 bytes can be read at once

  __device__ __forceinline__ T* operator[](int64_t i) const {
    return group == 1 ? base + i * row_stride : base + i / group * row_stride + i % group * dim;
  }
  __device__ __forceinline__ HeadRows from(int64_t row, int head) const {
    return {base + row * row_stride + int64_t(head) * group * dim, row_stride, group, dim, is_aligned};
  }

  // As load_chunk below asks for.
  template <int kPer, class N>
  __device__ __forceinline__ void load_unit(N* to, int64_t i, int col, int left) const {
    const T* const from = (*this)[i] + col;
    if (sizeof(N) == sizeof(T) && is_aligned) return store16(to, load16(from));
    for (int e = 0; e < kPer; ++e) put(to + e, e < left ? load(from + e) : 0.0f);
  }
};

template <class T>
HeadRows<T> head_rows(const Tensor& t, int group) {
  const int64_t dim = t.dim(2);
  T* const base = device_data<std::remove_const_t<T>>(t);
  return {base, t.dim(1) * dim, group, int(dim), are_rows_aligned(base, dim)};
}

// to[i][c] = element col + c of vector first + i of these rows, for i < kCount and c < width; 0 where there is none.
// rows.load_unit<kPer>(to, i, c, left) loads elements c to c + kPer of vector i, of which `left`, at least 1, exist.
template <int kCount, int kStride, class N, class Rows>
__device__ __forceinline__ void load_chunk(N (*to)[kStride], const Rows& rows, int64_t first, int count, int col,
                                           int width) {
  constexpr int kPer = 16 / int(sizeof(N)), kUnits = kHeadChunk / kPer;
  for (int unit = int(threadIdx.x); unit < kCount * kUnits; unit += kTileThreads) {
    const int i = unit / kUnits, c = unit % kUnits * kPer;
    if (c >= width) continue;
    const int left = i < count ? rows.dim - (col + c) : 0;
    if (left > 0)
      rows.template load_unit<kPer>(&to[i][c], first + i, col + c, left);
    else
      store16(&to[i][c], make_uint4(0, 0, 0, 0));
  }
}

// Where a thread stands in a tile: rows row(i) for i < kPerThread and columns col(j).
template <int kRows>
struct TilePlace {
  static constexpr int kPerThread = kRows / 8;
  static __device__ __forceinline__ int warp_row() { return int(threadIdx.x) / kWarp * (kRows / 4); }
  static __device__ __forceinline__ int row(int i) {
    return warp_row() + int(threadIdx.x) % kWarp / kRowThreads * kPerThread + i;
  }
  static __device__ __forceinline__ int row_thread() { return int(threadIdx.x) % kRowThreads; }
  static __device__ __forceinline__ int col(int j) { return row_thread() + kRowThreads * j; }
};

// Plain products in f32.
template <int kCols_>
struct PlainTile : TilePlace<32> {
  static constexpr int kRows = 32, kCols = kCols_, kColsPerThread = kCols / kRowThreads;
  static constexpr int kKept = kHeadChunk;  // columns of a that stay in shared memory
  using Place = TilePlace<kRows>;
  using Product = float[kPerThread][kColsPerThread];
  struct __align__(32) Shared {
    float a[kRows][kHeadChunk + 4];
    float b[kCols][kHeadChunk + 4];
    float rows[kRows][68];  // f32 by row and column
  };
  template <int kChunks>
  struct Sums {
    float x[kChunks][kPerThread][4];
  };

  // product = a b^T of a_count rows from a_first on and b_count columns. Without loads_a, a is as in the call before
  // and no wider than kKept.
  template <class A, class B>
  static __device__ __forceinline__ void multiply(Shared& sh, Product& product, const A& a, int64_t a_first,
                                                  int a_count, const B& b, int64_t b_first, int b_count,
                                                  bool loads_a = true) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      for (int j = 0; j < kColsPerThread; ++j) product[i][j] = 0;
    for (int at = 0; at < a.dim; at += kHeadChunk) {
      const int width = chunk_width(a.dim, at);
      __syncthreads();
      if (loads_a) load_chunk<kRows>(sh.a, a, a_first, a_count, at, width);
      load_chunk<kCols>(sh.b, b, b_first, b_count, at, width);
      __syncthreads();
      if (Place::warp_row() >= a_count) continue;
      for (int c = 0; c < width; c += 4) {
        float4 x[kPerThread];
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) x[i] = *reinterpret_cast<const float4*>(&sh.a[Place::row(i)][c]);
#pragma unroll
        for (int j = 0; j < kColsPerThread; ++j) {
          const float4 z = *reinterpret_cast<const float4*>(&sh.b[Place::col(j)][c]);
#pragma unroll
          for (int i = 0; i < kPerThread; ++i)
            product[i][j] += x[i].x * z.x + x[i].y * z.y + x[i].z * z.z + x[i].w * z.w;
        }
      }
    }
  }

  template <int kChunks>
  static __device__ __forceinline__ void clear(Sums<kChunks>& sums) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      for (int i = 0; i < kPerThread; ++i)
        for (int e = 0; e < 4; ++e) sums.x[c][i][e] = 0;
  }
  // Every row of the sums times its factor.
  template <int kChunks>
  static __device__ __forceinline__ void scale(Shared&, Sums<kChunks>& sums, const float (&factors)[kPerThread]) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      for (int i = 0; i < kPerThread; ++i)
        for (int e = 0; e < 4; ++e) sums.x[c][i][e] *= factors[i];
  }
  // Keeps a product for add_products.
  static __device__ __forceinline__ void stage(Shared& sh, const Product& product) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      for (int j = 0; j < kColsPerThread; ++j) sh.rows[Place::row(i)][Place::col(j)] = product[i][j];
    __syncwarp();
  }
  // Leaves what multiply just gave in sh.rows, in f32; for the block behind its next barrier.
  static __device__ __forceinline__ void to_rows(Shared& sh, const Product& product) { stage(sh, product); }
  // sums += what is staged times x's vectors [first, first + count), from column `begin` of them.
  template <int kChunks, class X>
  static __device__ __forceinline__ void add_products(Shared& sh, Sums<kChunks>& sums, int num_rows, const X& x,
                                                      int64_t first, int count, int begin) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int at = begin + c * kHeadChunk;
      if (at >= x.dim) break;
      const int width = chunk_width(x.dim, at), col = Place::row_thread() * 4;
      __syncthreads();
      load_chunk<kCols>(sh.b, x, first, count, at, width);
      __syncthreads();
      if (col >= width || Place::warp_row() >= num_rows) continue;
      for (int k = 0; k < count; k += 4) {
        float4 p[kPerThread];
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) p[i] = *reinterpret_cast<const float4*>(&sh.rows[Place::row(i)][k]);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float4 z = *reinterpret_cast<const float4*>(&sh.b[k + e][col]);
#pragma unroll
          for (int i = 0; i < kPerThread; ++i) {
            const float factor = e == 0 ? p[i].x : e == 1 ? p[i].y : e == 2 ? p[i].z : p[i].w;
            sums.x[c][i][0] += factor * z.x, sums.x[c][i][1] += factor * z.y;
            sums.x[c][i][2] += factor * z.z, sums.x[c][i][3] += factor * z.w;
          }
        }
      }
    }
  }
  // Columns c * kHeadChunk + 4 row_thread() and the next three of this thread's rows.
  template <int kChunks>
  static __device__ __forceinline__ void read(Shared&, const Sums<kChunks>& sums, int c,
                                              float (&values)[kPerThread][4]) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      for (int e = 0; e < 4; ++e) values[i][e] = sums.x[c][i][e];
  }
};

// Tensor cores: 16-bit factors, sums in f32. A warp has 16 rows. What is staged is rounded to 16 bits.
template <class T, int kCols_>
struct TensorTile : TilePlace<64> {
  static constexpr int kRows = 64, kCols = kCols_, kColsPerThread = kCols / kRowThreads;
  static constexpr int kKept = 2 * kHeadChunk, kStride = kHeadChunk + 8, kStagedStride = 2 * 68;
  using N = typename NativeOf<T>::Type;
  using Place = TilePlace<kRows>;
  using Product = float[kPerThread][kColsPerThread];
  struct __align__(32) Shared {
    N a[kRows][kKept + 8];
    N b[kCols][kStride];
    float rows[kRows][68];  // f32 by row and column, and what is staged in their place
    __device__ __forceinline__ N* staged(int row) { return reinterpret_cast<N*>(rows[row]); }
  };
  template <class Layout>
  using Left = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, N, Layout>;
  template <class Layout>
  using Right = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, N, Layout>;
  using Sum = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;
  template <int kChunks>
  struct Sums {
    Sum x[kChunks * kHeadChunk / 16];
  };

  template <class A, class B>
  static __device__ __forceinline__ void multiply(Shared& sh, Product& product, const A& a, int64_t a_first,
                                                  int a_count, const B& b, int64_t b_first, int b_count,
                                                  bool loads_a = true) {
    using namespace nvcuda::wmma;
    const int warp_row = Place::warp_row();
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      for (int j = 0; j < kColsPerThread; ++j) product[i][j] = 0;
    Sum sums[kCols / 16];
#pragma unroll
    for (int n = 0; n < kCols / 16; ++n) fill_fragment(sums[n], 0.0f);
    for (int at = 0; at < a.dim; at += kHeadChunk) {
      const int width = chunk_width(a.dim, at);
      __syncthreads();
      N* const kept = &sh.a[0][at % kKept];
      if (loads_a) load_chunk<kRows>(reinterpret_cast<N(*)[kKept + 8]>(kept), a, a_first, a_count, at, width);
      load_chunk<kCols>(sh.b, b, b_first, b_count, at, width);
      __syncthreads();
      if (warp_row >= a_count) continue;
      for (int c = 0; c < width; c += 16) {
        Left<row_major> left;
        load_matrix_sync(left, kept + warp_row * (kKept + 8) + c, kKept + 8);
#pragma unroll
        for (int n = 0; n < kCols / 16; ++n) {
          if (n * 16 >= b_count) break;
          Right<col_major> right;
          load_matrix_sync(right, &sh.b[n * 16][c], kStride);
          mma_sync(sums[n], left, right, sums[n]);
        }
      }
    }
    if (warp_row >= a_count) return;
#pragma unroll
    for (int n = 0; n < kCols / 16; ++n) store_matrix_sync(&sh.rows[warp_row][n * 16], sums[n], 68, mem_row_major);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      for (int j = 0; j < kColsPerThread; ++j) product[i][j] = sh.rows[Place::row(i)][Place::col(j)];
    __syncwarp();
  }

  template <int kChunks>
  static __device__ __forceinline__ void clear(Sums<kChunks>& sums) {
#pragma unroll
    for (Sum& sum : sums.x) nvcuda::wmma::fill_fragment(sum, 0.0f);
  }
  // Which element of a fragment lies where is not known, but it is the same in all of them: the factors become one.
  template <int kChunks>
  static __device__ __forceinline__ void scale(Shared& sh, Sums<kChunks>& sums, const float (&factors)[kPerThread]) {
    bool changes = false;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) changes |= factors[i] != 1;
    if (!__any_sync(kAllLanes, changes)) return;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) sh.rows[Place::row(i)][Place::row_thread()] = factors[i];
    __syncwarp();
    Sum factor;
    nvcuda::wmma::load_matrix_sync(factor, &sh.rows[Place::warp_row()][0], 68, nvcuda::wmma::mem_row_major);
#pragma unroll
    for (Sum& sum : sums.x)
      for (int e = 0; e < Sum::num_elements; ++e) sum.x[e] *= factor.x[e];
    __syncwarp();
  }
  static __device__ __forceinline__ void stage(Shared& sh, const Product& product) {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      for (int j = 0; j < kColsPerThread; ++j) put(sh.staged(Place::row(i)) + Place::col(j), product[i][j]);
    __syncwarp();
  }
  static __device__ __forceinline__ void to_rows(Shared&, const Product&) {}  // multiply has left it there
  template <int kChunks, class X>
  static __device__ __forceinline__ void add_products(Shared& sh, Sums<kChunks>& sums, int num_rows, const X& x,
                                                      int64_t first, int count, int begin) {
    using namespace nvcuda::wmma;
    const int warp_row = Place::warp_row();
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int at = begin + c * kHeadChunk;
      if (at >= x.dim) break;
      const int width = chunk_width(x.dim, at);
      __syncthreads();
      load_chunk<kCols>(sh.b, x, first, count, at, width);
      __syncthreads();
      if (warp_row >= num_rows) continue;
#pragma unroll
      for (int k = 0; k < kCols; k += 16) {
        if (k >= count) break;
        Left<row_major> left;
        load_matrix_sync(left, sh.staged(warp_row) + k, kStagedStride);
#pragma unroll
        for (int n = 0; n < kHeadChunk / 16; ++n) {
          if (n * 16 >= width) break;
          Right<row_major> right;
          load_matrix_sync(right, &sh.b[k][n * 16], kStride);
          mma_sync(sums.x[c * (kHeadChunk / 16) + n], left, right, sums.x[c * (kHeadChunk / 16) + n]);
        }
      }
    }
  }
  template <int kChunks>
  static __device__ __forceinline__ void read(Shared& sh, const Sums<kChunks>& sums, int c,
                                              float (&values)[kPerThread][4]) {
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kHeadChunk / 16; ++n)
      nvcuda::wmma::store_matrix_sync(&sh.rows[Place::warp_row()][n * 16], sums.x[c * (kHeadChunk / 16) + n], 68,
                                      nvcuda::wmma::mem_row_major);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const float4 x = *reinterpret_cast<const float4*>(&sh.rows[Place::row(i)][Place::row_thread() * 4]);
      values[i][0] = x.x, values[i][1] = x.y, values[i][2] = x.z, values[i][3] = x.w;
    }
    __syncwarp();
  }
};

template <class T, int kCols>
struct TileOf {
  using Type = TensorTile<T, kCols>;
};
template <int kCols>
struct TileOf<float, kCols> {
  using Type = PlainTile<64>;
};

// Four neighbouring elements of a row of `dim`, of which those from `dim` on are not there.
template <class T>
__device__ __forceinline__ void store_four(T* row, int col, int dim, const float (&values)[4], bool is_aligned) {
  struct __align__(4 * sizeof(T)) Four {
    T x[4];
  };
  if (is_aligned && col + 4 <= dim) {
    Four four;
#pragma unroll
    for (int e = 0; e < 4; ++e) store(&four.x[e], values[e]);
    *reinterpret_cast<Four*>(row + col) = four;
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e)
    if (col + e < dim) store(row + col + e, values[e]);
}

// work.operator()<kChunks>() with the chunks of a head that a block keeps sums of: the fewest that are all of `dim`
// columns, or kMost.
template <int kChunks = 1, int kMost = 4, class Work>
void with_chunks(int64_t dim, Work&& work) {
  if constexpr (kChunks < kMost)
    if (dim > kChunks * kHeadChunk) return with_chunks<2 * kChunks, kMost>(dim, work);
  work.template operator()<kChunks>();
}
template <int kChunks>
int64_t chunk_groups(int64_t dim) {
  return std::max<int64_t>(ceil_div(dim, int64_t(kChunks) * kHeadChunk), 1);
}

}  // namespace weft::cuda
