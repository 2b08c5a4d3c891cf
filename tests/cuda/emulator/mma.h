// nvcuda::wmma on the CPU: every lane holds whole tiles, which is all that its contract lets a kernel rely on as long
// as it treats the elements of a fragment alike.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major };

inline float wide(float x) { return x; }
inline float wide(__half x) { return __half2float(x); }
inline float wide(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static constexpr int kRows = std::is_same_v<Use, matrix_b> ? K : M, kCols = std::is_same_v<Use, matrix_a> ? K : N;
  static constexpr int num_elements = kRows * kCols;
  static constexpr bool is_col_major = std::is_same_v<Layout, col_major>;
  T x[num_elements];  // row by row
};

template <class Use, int M, int N, int K, class T, class Layout>
void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, T value) {
  std::fill_n(f.x, f.num_elements, value);
}
template <class F, class T>
void load_tile(F& f, const T* p, unsigned stride, bool is_col_major) {
  emulated::sync_warp();
  for (int r = 0; r < F::kRows; ++r)
    for (int c = 0; c < F::kCols; ++c)
      f.x[r * F::kCols + c] = is_col_major ? p[size_t(c) * stride + size_t(r)] : p[size_t(r) * stride + size_t(c)];
  emulated::sync_warp();
}
template <class Use, int M, int N, int K, class T, class Layout>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const T* p, unsigned stride) {
  load_tile(f, p, stride, f.is_col_major);
}
template <int M, int N, int K, class T>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const T* p, unsigned stride, layout_t) {
  load_tile(f, p, stride, false);
}
template <int M, int N, int K, class T>
void store_matrix_sync(T* p, const fragment<accumulator, M, N, K, T>& f, unsigned stride, layout_t) {
  emulated::sync_warp();
  if (emulated::lane() == 0)
    for (int r = 0; r < M; ++r) std::copy_n(f.x + r * N, N, p + size_t(r) * stride);
  emulated::sync_warp();
}
template <int M, int N, int K, class A, class LA, class LB>
void mma_sync(fragment<accumulator, M, N, K, float>& d, const fragment<matrix_a, M, N, K, A, LA>& a,
              const fragment<matrix_b, M, N, K, A, LB>& b, const fragment<accumulator, M, N, K, float>& c) {
  float* const sums = static_cast<float*>(emulated::warp_memory(sizeof(d.x)));
  emulated::sync_warp();
  if (emulated::lane() == 0)  // all lanes hold the same
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < N; ++j) {
        float sum = c.x[i * N + j];
        for (int k = 0; k < K; ++k) sum += wide(a.x[i * K + k]) * wide(b.x[k * N + j]);
        sums[i * N + j] = sum;
      }
  emulated::sync_warp();
  std::copy_n(sums, d.num_elements, d.x);
}

}  // namespace nvcuda::wmma
