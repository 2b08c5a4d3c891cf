// Masters in two halves and back.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/master.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

struct SplitMasters {
  Halves halves;
  const float* x;

  template <int N>
  __device__ void at(int64_t i) const {
    float whole[N];
    load_n(whole, x + i);
    halves.store(i, whole);
  }
};

struct JoinMasters {
  float* x;
  Halves halves;

  template <int N>
  __device__ void at(int64_t i) const {
    float whole[N];
    halves.load(i, whole);
    store_n(x + i, whole);
  }
};

}  // namespace

void split_masters(Stream& stream, const Tensor& upper, const Tensor& lower, const Tensor& x) {
  shapes::check_halves("split_masters", upper, lower, x);
  for_elements<BFloat16, float>(stream, SplitMasters{Halves::of(upper, lower), device_data<float>(x)}, x.numel(),
                                are_aligned(upper, lower, x));
}

void join_masters(Stream& stream, const Tensor& x, const Tensor& upper, const Tensor& lower) {
  shapes::check_halves("join_masters", upper, lower, x);
  for_elements<BFloat16, float>(stream, JoinMasters{device_data<float>(x), Halves::of(upper, lower)}, x.numel(),
                                are_aligned(upper, lower, x));
}

}  // namespace weft::cuda
