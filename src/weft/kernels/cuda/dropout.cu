// Dropout: each element's fate is a number drawn for its index; ten rounds of Philox bound it, not memory.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/philox.cuh"
#include "weft/kernels/cuda/vectors.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T>
struct Drop {
  T* y;
  const T* x;
  DropoutFactors factors;
  uint64_t first;

  template <int N>
  __device__ void at(int64_t i) const {
    float a[N];
    load_n(a, x + i);
    for (int j = 0; j < N; ++j) {
      const float factor = factors.at(first + uint64_t(i + j));
      a[j] = factor == 0 ? 0 : a[j] * factor;  // a dropped infinity is 0, not NaN
    }
    store_n(y + i, a);
  }
};

}  // namespace

void dropout(Stream& stream, const Tensor& y, const Tensor& x, const DropoutKey& key) {
  shapes::check_dropout(y, x, key);
  with_float("dropout", x, [&]<class T>() {
    const Drop<T> op{device_data<T>(y), device_data<T>(x), DropoutFactors::of(key), key.first};
    for_elements<T>(stream, op, x.numel(), are_aligned(y, x));
  });
}

}  // namespace weft::cuda
