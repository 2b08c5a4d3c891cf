// Vectors: the elements that a thread takes in one go, 16 bytes at a time where tensors lie so, and loops over them.
#pragma once
#include "weft/kernels/cuda/alignment.h"
#include "weft/kernels/cuda/values.cuh"

namespace weft::cuda {

// How many elements make up whole vectors of 16 bytes in every one of these types.
template <class... T>
constexpr int kVector = 16 / int(std::min({sizeof(T)...}));

// N elements from p on. More than one: N is a kVector of T, and p is 16-byte aligned.
template <int N, class T>
__device__ __forceinline__ void load_n(float (&x)[N], const T* p) {
  if constexpr (N == 1) {
    x[0] = load(p);
  } else if constexpr (sizeof(T) == 4) {
    for (int i = 0; i < N; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(p + i);
      x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
    }
  } else {
    static_assert(N == 8);
    const uint4 words = *reinterpret_cast<const uint4*>(p);
    const unsigned pairs[4] = {words.x, words.y, words.z, words.w};
    for (int i = 0; i < 4; ++i) {
      T low, high;
      low.bits = uint16_t(pairs[i]), high.bits = uint16_t(pairs[i] >> 16);
      x[2 * i] = load(&low), x[2 * i + 1] = load(&high);
    }
  }
}

template <int N, class T>
__device__ __forceinline__ void store_n(T* p, const float (&x)[N]) {
  if constexpr (N == 1) {
    store(p, x[0]);
  } else if constexpr (sizeof(T) == 4) {
    for (int i = 0; i < N; i += 4)
      *reinterpret_cast<float4*>(p + i) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
  } else {
    static_assert(N == 8);
    unsigned pairs[4];
    for (int i = 0; i < 4; ++i) {
      T low, high;
      store(&low, x[2 * i]), store(&high, x[2 * i + 1]);
      pairs[i] = low.bits | unsigned(high.bits) << 16;
    }
    *reinterpret_cast<uint4*>(p) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
}

template <int N, class Op>
__global__ void elements_kernel(const Op op, int64_t count) {
  const int64_t vectors = count / N;
  for (int64_t i = first_element(); i < vectors; i += element_stride()) op.template at<N>(i * N);
  if constexpr (N > 1)
    for (int64_t i = vectors * N + first_element(); i < count; i += element_stride()) op.template at<1>(i);
}

// op.at<N>(i) for all elements, in a kernel: it does those from i to i + N, where N is kVector<T...> or 1.
template <class... T, class Op>
void for_elements(Stream& stream, const Op& op, int64_t count, bool is_aligned) {
  constexpr int N = kVector<T...>;
  if (is_aligned)
    launch(stream, elements_kernel<N, Op>, over_elements(count, N), op, count);
  else
    launch(stream, elements_kernel<1, Op>, over_elements(count), op, count);
}

}  // namespace weft::cuda
