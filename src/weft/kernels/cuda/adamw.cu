// AdamW: one pass over parameters, gradients and moments, bound by memory.
#include "weft/kernels/cuda/adamw.cuh"

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/master.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

// M is a Master, G the gradient's type.
template <class M, class G>
struct AdamW {
  M master;
  float *m, *v;
  const G* grad;
  AdamWRule rule;

  template <int N>
  __device__ void at(int64_t i) const {
    float update[N], first[N], second[N], x[N];
    load_n(update, grad + i);
    load_n(first, m + i);
    load_n(second, v + i);
    master.load(i, x);
    for (int j = 0; j < N; ++j) update[j] = rule.update(update[j], first[j], second[j]);
    store_n(m + i, first);
    store_n(v + i, second);
    master.step(i, x, update);
  }
};

}  // namespace

void adamw(Stream& stream, const AdamWArgs& args) {
  shapes::check_adamw(args);
  with_master("adamw", args, [&]<class T, class M>(const M& master) {
    with_gradient<T>(args.grad, [&]<class G>(const G* grad) {
      const AdamW<M, G> op{master, device_data<float>(args.m), device_data<float>(args.v), grad, AdamWRule::of(args)};
      for_elements<T, float>(stream, op, args.master.numel(),
                             are_aligned(args.master, args.value, args.m, args.v, args.grad));
    });
  });
}

}  // namespace weft::cuda
