// SGD with momentum, and Lion: one pass each, bound by memory.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/master.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class M>
struct Sgd {
  M master;
  float* m;  // optional
  const float* grad;
  float grad_scale, momentum;
  bool nesterov;

  template <int N>
  __device__ void at(int64_t i) const {
    float g[N], x[N];
    load_n(g, grad + i);
    master.load(i, x);
    for (int j = 0; j < N; ++j) g[j] *= grad_scale;
    if (m) {
      float moment[N];
      load_n(moment, m + i);
      for (int j = 0; j < N; ++j) {
        moment[j] = momentum * moment[j] + g[j];
        g[j] = nesterov ? g[j] + momentum * moment[j] : moment[j];
      }
      store_n(m + i, moment);
    }
    master.step(i, x, g);
  }
};

template <class M>
struct Lion {
  M master;
  float* m;
  const float* grad;
  float grad_scale, beta1, beta2, softness;

  template <int N>
  __device__ void at(int64_t i) const {
    float g[N], moment[N], x[N];
    load_n(g, grad + i);
    load_n(moment, m + i);
    master.load(i, x);
    for (int j = 0; j < N; ++j) {
      const float scaled = g[j] * grad_scale, c = beta1 * moment[j] + (1 - beta1) * scaled;
      g[j] = c == 0 ? 0 : c / (fabsf(c) + softness);
      moment[j] = beta2 * moment[j] + (1 - beta2) * scaled;
    }
    store_n(m + i, moment);
    master.step(i, x, g);
  }
};

}  // namespace

void sgd(Stream& stream, const SgdArgs& args) {
  shapes::check_sgd(args);
  with_master("sgd", args, [&]<class T, class M>(const M& master) {
    const Sgd<M> op{
        master,       device_data<float>(args.m), device_data<float>(args.grad), args.grad_scale, args.momentum,
        args.nesterov};
    for_elements<T, float>(stream, op, args.master.numel(), are_aligned(args.master, args.value, args.m, args.grad));
  });
}

void lion(Stream& stream, const LionArgs& args) {
  shapes::check_lion(args);
  with_master("lion", args, [&]<class T, class M>(const M& master) {
    const Lion<M> op{master,
                     device_data<float>(args.m),
                     device_data<float>(args.grad),
                     args.grad_scale,
                     args.beta1,
                     args.beta2,
                     args.softness};
    for_elements<T, float>(stream, op, args.master.numel(), are_aligned(args.master, args.value, args.m, args.grad));
  });
}

}  // namespace weft::cuda
