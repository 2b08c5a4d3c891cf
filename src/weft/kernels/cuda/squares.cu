// The sum of a tensor's squares in double, so that it is infinite only where an element is.
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

double sum_of_squares(Stream& stream, const Tensor& x) {
  shapes::check_sum_of_squares(x);
  double sum = 0;
  with_float("sum_of_squares", x, [&]<class T>() {
    const SquareTerms<T> terms{device_data<T>(x)};
    sum = are_aligned(x) ? sum_terms<kVector<T>>(stream, terms, x.numel()) : sum_terms<1>(stream, terms, x.numel());
  });
  return sum;
}

}  // namespace weft::cuda
