// Sums of many terms in double, in an order that depends on their number alone, read back by the host.
#pragma once
#include "weft/kernels/cuda/reduce.cuh"
#include "weft/kernels/cuda/vectors.cuh"

namespace weft::cuda {

template <int N, class Terms>
__global__ void term_sums_kernel(double* sums, const Terms terms, int64_t count) {
  double sum = 0;
  const int64_t vectors = count / N;
  for (int64_t i = first_element(); i < vectors; i += element_stride()) sum += terms.template sum<N>(i * N);
  if constexpr (N > 1)
    for (int64_t i = vectors * N + first_element(); i < count; i += element_stride()) sum += terms.template sum<1>(i);
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

struct SumTerms {
  const double* sums;

  template <int N>
  __device__ double sum(int64_t i) const {
    return sums[i];
  }
};

constexpr int64_t kMostSums = 1024;

// sums[0] to the next kMostSums - 1, as many as are returned, add up to all `count` terms.sum<N>(i), N at a time.
template <int N, class Terms>
int64_t start_sums(Stream& stream, double* sums, const Terms& terms, int64_t count) {
  LaunchShape shape = over_elements(count, N);
  shape.blocks_x = unsigned(std::min<int64_t>(shape.blocks_x, kMostSums));
  launch(stream, term_sums_kernel<N, Terms>, shape, sums, terms, count);
  return shape.blocks_x;
}

// Waits for the device.
inline double sum_of(Stream& stream, const double* terms, int64_t count) {
  if (count == 0) return 0;
  const Tensor total = stream.allocator().empty(DType::f64, {1});
  launch(stream, term_sums_kernel<1, SumTerms>, LaunchShape{.blocks_x = 1}, device_data<double>(total),
         SumTerms{terms}, count);
  double result = 0;
  stream.queue().copy_to_host(&result, device_data<double>(total), sizeof(result));
  return result;
}

}  // namespace weft::cuda
