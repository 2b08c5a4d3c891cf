// An optimizer's masters in a kernel's hands: f32 beside a copy in the compute dtype, or in two halves.
#pragma once
#include "weft/kernels/cuda/vectors.cuh"

namespace weft::cuda {

// Masters of f32 in two halves, bit for bit those of master_halves.h.
struct Halves {
  BFloat16* upper;
  uint16_t* lower;

  static Halves of(const Tensor& upper, const Tensor& lower) {
    return {device_data<BFloat16>(upper), device_data<uint16_t>(lower)};
  }

  // As load_n and store_n, from element i on.
  template <int N>
  __device__ __forceinline__ void load(int64_t i, float (&x)[N]) const {
    if constexpr (N == 1) {
      x[0] = whole(upper[i].bits, lower[i]);
    } else {
      static_assert(N == 8);
      const uint4 high = *reinterpret_cast<const uint4*>(upper + i), low = *reinterpret_cast<const uint4*>(lower + i);
      const unsigned highs[4] = {high.x, high.y, high.z, high.w}, lows[4] = {low.x, low.y, low.z, low.w};
      for (int j = 0; j < 4; ++j) {
        x[2 * j] = whole(highs[j] & 0xffff, uint16_t(lows[j]));
        x[2 * j + 1] = whole(highs[j] >> 16, uint16_t(lows[j] >> 16));
      }
    }
  }
  template <int N>
  __device__ __forceinline__ void store(int64_t i, const float (&x)[N]) const {
    if constexpr (N == 1) {
      const unsigned bits = __float_as_uint(x[0]);
      upper[i].bits = uint16_t((bits + 0x8000u) >> 16), lower[i] = uint16_t(bits);
    } else {
      static_assert(N == 8);
      unsigned highs[4], lows[4];
      for (int j = 0; j < 4; ++j) {
        const unsigned first = __float_as_uint(x[2 * j]), second = __float_as_uint(x[2 * j + 1]);
        highs[j] = (first + 0x8000u) >> 16 | ((second + 0x8000u) & 0xffff0000u);
        lows[j] = (first & 0xffff) | second << 16;
      }
      *reinterpret_cast<uint4*>(upper + i) = make_uint4(highs[0], highs[1], highs[2], highs[3]);
      *reinterpret_cast<uint4*>(lower + i) = make_uint4(lows[0], lows[1], lows[2], lows[3]);
    }
  }

 private:
  __device__ static __forceinline__ float whole(unsigned high, uint16_t low) {
    return __uint_as_float((high << 16) + unsigned(int(int16_t(low))));
  }
};

// f32 beside an optional copy of it.
template <class T>
struct Whole {
  float* master;
  T* value;  // optional

  template <int N>
  __device__ __forceinline__ void load(int64_t i, float (&x)[N]) const {
    load_n(x, master + i);
  }
  template <int N>
  __device__ __forceinline__ void store(int64_t i, const float (&x)[N]) const {
    store_n(master + i, x);
    if (value) store_n(value + i, x);
  }
};

template <class Memory>
struct Master {
  Memory memory;
  float lr, weight_decay;

  // To be loaded with what the update is made of, before anything is stored: a load waits for the stores before it.
  template <int N>
  __device__ __forceinline__ void load(int64_t i, float (&x)[N]) const {
    memory.load(i, x);
  }
  // x, which load gave, -= lr * (update + weight_decay * x)
  template <int N>
  __device__ __forceinline__ void step(int64_t i, float (&x)[N], const float (&update)[N]) const {
    for (int j = 0; j < N; ++j) x[j] -= lr * (update[j] + weight_decay * x[j]);
    memory.store(i, x);
  }
};

// work.operator()<T>(Master) of any of the optimizers' arguments; T is the value's type.
template <class Args, class Work>
void with_master(const char* op, const Args& args, Work&& work) {
  if (args.master.dtype() == DType::u16)
    return work.template operator()<BFloat16>(
        Master<Halves>{Halves::of(args.value, args.master), args.lr, args.weight_decay});
  float* const master = device_data<float>(args.master);
  if (!args.value)
    return work.template operator()<float>(Master<Whole<float>>{{master, nullptr}, args.lr, args.weight_decay});
  if (args.value.dtype() != DType::f16)
    throw Error("{}: the value holds {}, but must be a copy in f16 or an upper half", op,
                name_of(args.value.dtype()));
  work.template operator()<Float16>(
      Master<Whole<Float16>>{{master, device_data<Float16>(args.value)}, args.lr, args.weight_decay});
}

// work(pointer to the gradient's elements), which are f32 or of the value's type T.
template <class T, class Work>
void with_gradient(const Tensor& grad, Work&& work) {
  if constexpr (!std::is_same_v<T, float>)
    if (grad.dtype() != DType::f32) return work(static_cast<const T*>(device_data<T>(grad)));
  work(static_cast<const float*>(device_data<float>(grad)));
}

}  // namespace weft::cuda
