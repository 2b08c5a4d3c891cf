// Master: an optimizer's f32 parameters and their copy in the compute dtype.
#pragma once
#include "weft/kernels/cuda/vectors.cuh"

namespace weft::cuda {

template <class T>
struct Master {
  float* master;
  T* value;  // optional
  float lr, weight_decay;

  // master -= lr * (update + weight_decay * master)
  template <int N>
  __device__ __forceinline__ void step(int64_t i, const float (&update)[N]) const {
    float x[N];
    load_n(x, master + i);
    for (int j = 0; j < N; ++j) x[j] -= lr * (update[j] + weight_decay * x[j]);
    store_n(master + i, x);
    if (value) store_n(value + i, x);
  }
};

// work.operator()<T>(Master<T>) of any of the optimizers' arguments.
template <class Args, class Work>
void with_master(const char* op, const Args& args, Work&& work) {
  with_float(op, args.value ? args.value : args.master, [&]<class T>() {
    work.template operator()<T>(Master<T>{device_data<float>(args.master),
                                          args.value ? device_data<T>(args.value) : nullptr, args.lr,
                                          args.weight_decay});
  });
}

}  // namespace weft::cuda
