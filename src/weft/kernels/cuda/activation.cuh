// Activation functions and their derivatives of one element, for element-wise kernels and matmul epilogues.
#pragma once
#include "weft/kernels/cuda/values.cuh"

namespace weft::cuda {

constexpr float kSqrt2OverPi = 0.7978845608f, kInvSqrt2 = 0.7071067812f, kInvSqrt2Pi = 0.3989422804f;
constexpr float kGeluCubic = 0.044715f, kQuick = 1.702f;  // Hendrycks and Gimpel, 2016

__device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }
__device__ __forceinline__ float normal_cdf(float x) { return 0.5f * erfcf(-x * kInvSqrt2); }

__device__ __forceinline__ float activate(Activation f, float x) {
  switch (f) {
    case Activation::gelu: return x * normal_cdf(x);
    case Activation::gelu_tanh: return 0.5f * x * (1 + tanhf(kSqrt2OverPi * (x + kGeluCubic * x * x * x)));
    case Activation::relu: return x > 0 ? x : 0;
    case Activation::relu_squared: return x > 0 ? x * x : 0;
    case Activation::silu: return x * sigmoid(x);
    case Activation::gelu_quick: return x * sigmoid(kQuick * x);
    case Activation::swiglu_oai: {
      const float held = x > kOaiLimit ? kOaiLimit : x;  // what is no number stays
      return held * sigmoid(kQuick * held);
    }
    case Activation::swiglu_clipped: {
      const float held = x > kClippedLimit ? kClippedLimit : x;
      return held * sigmoid(held);
    }
    case Activation::sigmoid: return sigmoid(x);
    case Activation::tanh: return tanhf(x);
    case Activation::identity: return x;
  }
  return 0;
}

// The derivative.
__device__ __forceinline__ float activation_slope(Activation f, float x) {
  switch (f) {
    case Activation::gelu: return normal_cdf(x) + x * (expf(-0.5f * x * x) * kInvSqrt2Pi);
    case Activation::gelu_tanh: {
      const float t = tanhf(kSqrt2OverPi * (x + kGeluCubic * x * x * x));
      return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kGeluCubic * x * x);
    }
    case Activation::relu: return x > 0 ? 1 : 0;
    case Activation::relu_squared: return x > 0 ? 2 * x : 0;
    case Activation::silu: {
      const float s = sigmoid(x);
      return s * (1 + x * (1 - s));
    }
    case Activation::gelu_quick: {
      const float s = sigmoid(kQuick * x);
      return s * (1 + kQuick * x * (1 - s));
    }
    case Activation::swiglu_oai: {
      const float s = sigmoid(kQuick * x);
      return x > kOaiLimit ? 0 : s * (1 + kQuick * x * (1 - s));
    }
    case Activation::swiglu_clipped: {
      const float s = sigmoid(x);
      return x > kClippedLimit ? 0 : s * (1 + x * (1 - s));
    }
    case Activation::sigmoid: {
      const float s = sigmoid(x);
      return s * (1 - s);
    }
    case Activation::tanh: return 4 * sigmoid(2 * x) * sigmoid(-2 * x);  // 1 - tanh(x)^2
    case Activation::identity: return 1;
  }
  return 0;
}

// What a gate f(g) multiplies by, and its derivative.
__device__ __forceinline__ float gating_up(Activation f, float up) {
  if (f == Activation::swiglu_oai) return 1 + (fabsf(up) > kOaiLimit ? copysignf(kOaiLimit, up) : up);
  return f == Activation::swiglu_clipped && fabsf(up) > kClippedLimit ? copysignf(kClippedLimit, up) : up;
}
__device__ __forceinline__ float gating_slope(Activation f, float up) {
  const bool is_beyond = (f == Activation::swiglu_oai && fabsf(up) > kOaiLimit) ||
                         (f == Activation::swiglu_clipped && fabsf(up) > kClippedLimit);
  return is_beyond ? 0 : 1;
}

}  // namespace weft::cuda
