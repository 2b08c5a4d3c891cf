// Sums of terms over the rows of a matrix, in two passes where there are many rows.
#pragma once
#include "weft/kernels/cuda/vectors.cuh"

namespace weft::cuda {

// A matrix's elements as they are.
template <class T>
struct ElementTerms {
  const T* x;
  int64_t cols;

  template <int N>
  __device__ __forceinline__ void at(float (&term)[N], int64_t row, int64_t col) const {
    load_n(term, x + row * cols + col);
  }
};

// Group g's sums become row g of y, or are added to it.
template <int N, class Terms>
__global__ void column_sums_kernel(float* y, const Terms terms, int64_t rows, int64_t cols, int64_t rows_per_group,
                                   bool accumulate) {
  constexpr int kLanes = ColumnSumShape::kRowLanes;
  __shared__ float sums[kLanes][kWarp * N];
  const int lane = int(threadIdx.x) % kWarp, row_lane = int(threadIdx.x) / kWarp;
  const int64_t col = (int64_t(blockIdx.x) * kWarp + lane) * N, group = blockIdx.y;
  const int64_t end = min(rows, (group + 1) * rows_per_group);
  float sum[N] = {};
  if (col < cols)
    for (int64_t row = group * rows_per_group + row_lane; row < end; row += kLanes) {
      float term[N];
      terms.at(term, row, col);
      for (int i = 0; i < N; ++i) sum[i] += term[i];
    }
  for (int i = 0; i < N; ++i) sums[row_lane][i * kWarp + lane] = sum[i];
  __syncthreads();
  // Row lane by row lane, columns are shared out anew.
  for (int at = int(threadIdx.x); at < kWarp * N; at += kWarp * kLanes) {
    const int64_t c = int64_t(blockIdx.x) * kWarp * N + at;
    if (c >= cols) continue;
    const int place = at % N * kWarp + at / N;
    float total = sums[0][place];
    for (int i = 1; i < kLanes; ++i) total += sums[i][place];
    float* const to = y + group * cols + c;
    *to = accumulate ? *to + total : total;
  }
}

inline Tensor partial_sums(Stream& stream, int64_t count, int64_t cols) {
  return stream.allocator().empty(DType::f32, {count, cols});
}

// y[c] = or += the sum over rows of terms.at(row, c). N columns at a time: terms say whether they lie so.
template <int N, class Terms>
void sum_columns(Stream& stream, float* y, const Terms& terms, int64_t rows, int64_t cols, bool accumulate) {
  const ColumnSumShape shape = over_column_sums(rows, cols, N);
  if (shape.num_groups == 1)
    return launch(stream, column_sums_kernel<N, Terms>, shape.launch, y, terms, rows, cols, shape.rows_per_group,
                  accumulate);
  const Tensor partial = partial_sums(stream, shape.num_groups, cols);
  launch(stream, column_sums_kernel<N, Terms>, shape.launch, device_data<float>(partial), terms, rows, cols,
         shape.rows_per_group, false);
  LaunchShape last = over_column_sums(1, cols, 1).launch;
  launch(stream, column_sums_kernel<1, ElementTerms<float>>, last, y,
         ElementTerms<float>{device_data<float>(partial), cols}, shape.num_groups, cols, shape.num_groups,
         accumulate);
}

}  // namespace weft::cuda
