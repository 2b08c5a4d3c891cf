// AdamW's step of one element.
#pragma once
#include "weft/kernels/cuda/values.cuh"
#include "weft/kernels/optimizer_args.h"

namespace weft::cuda {

struct AdamWRule {
  float grad_scale, beta1, beta2, eps, inverse_correction1, inverse_correction2;

  static AdamWRule of(const AdamWArgs& a) {
    return {a.grad_scale, a.beta1, a.beta2, a.eps, 1 / a.bias_correction1, 1 / a.bias_correction2};
  }
  // The update; m and v become the new moments.
  __device__ __forceinline__ float update(float grad, float& m, float& v) const {
    const float g = grad * grad_scale;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    // Within two units in the last place; a division that rounds to nearest takes four times as many instructions.
    return __fdividef(m * inverse_correction1, sqrtf(v * inverse_correction2) + eps);
  }
};

}  // namespace weft::cuda
