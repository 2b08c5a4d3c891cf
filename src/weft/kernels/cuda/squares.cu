// The sum of squares in double, so that it is infinite only where an element is.
#include "weft/kernels/cuda/squares.cuh"

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T>
struct SquareTerms {
  const T* x;

  template <int N>
  __device__ double sum(int64_t i) const {
    float a[N];
    load_n(a, x + i);
    double total = 0;
    for (int j = 0; j < N; ++j) total += double(a[j]) * double(a[j]);
    return total;
  }
};

}  // namespace

double sum_of_squares(Stream& stream, std::span<const Tensor> xs) {
  shapes::check_sum_of_squares(xs);
  const Tensor sums = stream.allocator().empty(DType::f64, {int64_t(xs.size()) * kMostSums});
  int64_t count = 0;
  for (const Tensor& x : xs) {
    with_float("sum_of_squares", x, [&]<class T>() {
      const SquareTerms<T> terms{device_data<T>(x)};
      double* const to = device_data<double>(sums) + count;
      count += are_aligned(x) ? start_sums<kVector<T>>(stream, to, terms, x.numel())
                              : start_sums<1>(stream, to, terms, x.numel());
    });
  }
  return sum_of(stream, device_data<double>(sums), count);
}

}  // namespace weft::cuda
