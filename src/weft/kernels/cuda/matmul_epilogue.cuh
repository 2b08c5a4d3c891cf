// What becomes of the elements of a product before they are stored: bias, activations and gates.
#pragma once
#include "weft/kernels/cuda/activation.cuh"
#include "weft/kernels/cuda/vectors.cuh"

namespace weft::cuda {

// Elements of any float dtype: those of an epilogue's tensors may differ from those of y.
struct Floats {
  void* p = nullptr;  // null: there are none
  DType type = DType::f32;
};

// An Epilogue as kernels take it.
struct Finish {
  Epilogue::Kind kind;
  Activation f;
  bool accumulate;
  Floats y;  // null where it holds the product already and stays as it is
  Floats bias, act, gate, up, pre, dgate;
};

inline Floats floats_of(const Tensor& t) {
  if (!t) return {};
  with_float("matmul", t, [&]<class T>() {});
  return {t.raw(), t.dtype()};
}

// Of MatmulArgs or GroupedMatmulArgs.
template <class Args>
Finish finish_of(const Args& args) {
  const Epilogue& e = args.epilogue;
  return {.kind = e.kind,
          .f = e.f,
          .accumulate = args.accumulate,
          .y = floats_of(args.y),
          .bias = floats_of(e.bias),
          .act = floats_of(e.act),
          .gate = floats_of(e.gate),
          .up = floats_of(e.up),
          .pre = floats_of(e.pre),
          .dgate = floats_of(e.dgate)};
}

// Elements from `at` on: one, or eight, which then lie at a multiple of 16 bytes.
template <int kWidth>
__device__ __forceinline__ void load_floats(const Floats& t, int64_t at, float (&x)[kWidth]) {
  if (t.type == DType::f32) return load_n(x, static_cast<const float*>(t.p) + at);
  if (t.type == DType::bf16) return load_n(x, static_cast<const BFloat16*>(t.p) + at);
  load_n(x, static_cast<const Float16*>(t.p) + at);
}
template <int kWidth>
__device__ __forceinline__ void store_floats(const Floats& t, int64_t at, const float (&x)[kWidth]) {
  if (t.type == DType::f32) return store_n(static_cast<float*>(t.p) + at, x);
  if (t.type == DType::bf16) return store_n(static_cast<BFloat16*>(t.p) + at, x);
  store_n(static_cast<Float16*>(t.p) + at, x);
}

// Finishes elements from `at` on, whose products are x. col: where their biases are.
template <Epilogue::Kind kKind, int kWidth>
__device__ __forceinline__ void finish_as(const Finish& e, int64_t at, int64_t col, float (&x)[kWidth]) {
  using Kind = Epilogue::Kind;
  float other[kWidth];
  if (e.bias.p) {
    load_floats(e.bias, col, other);
    for (int i = 0; i < kWidth; ++i) x[i] += other[i];
  }
  if (kKind == Kind::none && e.accumulate) {
    load_floats(e.y, at, other);
    for (int i = 0; i < kWidth; ++i) x[i] += other[i];
  }
  if constexpr (kKind == Kind::activate) {
    for (int i = 0; i < kWidth; ++i) other[i] = activate(e.f, x[i]);
    store_floats(e.act, at, other);
  } else if constexpr (kKind == Kind::gated) {
    load_floats(e.gate, at, other);
    for (int i = 0; i < kWidth; ++i) other[i] = activate(e.f, other[i]) * gating_up(e.f, x[i]);
    store_floats(e.act, at, other);
  } else if constexpr (kKind == Kind::activate_backward) {
    load_floats(e.pre, at, other);
    for (int i = 0; i < kWidth; ++i) x[i] *= activation_slope(e.f, other[i]);
  } else if constexpr (kKind == Kind::gated_backward) {
    float dgate[kWidth];
    load_floats(e.gate, at, other);
    load_floats(e.up, at, dgate);
    for (int i = 0; i < kWidth; ++i) {
      const float slope = gating_slope(e.f, dgate[i]);  // of up
      dgate[i] = gating_up(e.f, dgate[i]) * (x[i] * activation_slope(e.f, other[i]));
      x[i] *= activate(e.f, other[i]) * slope;
    }
    store_floats(e.dgate, at, dgate);
  }
  if (e.y.p) store_floats(e.y, at, x);
}

// The same for kernels that finish elements now and then.
template <int kWidth>
__device__ __forceinline__ void finish(const Finish& e, int64_t at, int64_t col, float (&x)[kWidth]) {
  using Kind = Epilogue::Kind;
  switch (e.kind) {
    case Kind::none: return finish_as<Kind::none>(e, at, col, x);
    case Kind::activate: return finish_as<Kind::activate>(e, at, col, x);
    case Kind::gated: return finish_as<Kind::gated>(e, at, col, x);
    case Kind::activate_backward: return finish_as<Kind::activate_backward>(e, at, col, x);
    case Kind::gated_backward: return finish_as<Kind::gated_backward>(e, at, col, x);
  }
}

}  // namespace weft::cuda
