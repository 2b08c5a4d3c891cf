// What becomes of the elements of a product before they are stored: bias, activations and gates.
#pragma once
#include "weft/kernels/cuda/activation.cuh"

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
  with_float("matmul", t, []<class T>() {});
  return {t.raw(), t.dtype()};
}

inline Finish finish_of(const MatmulArgs& args) {
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

__device__ __forceinline__ float bf16_low(unsigned two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float bf16_high(unsigned two) { return __uint_as_float(two & 0xffff0000u); }
__device__ __forceinline__ float f16_low(unsigned two) { return __half2float(__ushort_as_half((unsigned short)two)); }
__device__ __forceinline__ float f16_high(unsigned two) {
  return __half2float(__ushort_as_half((unsigned short)(two >> 16)));
}
template <class T>
__device__ __forceinline__ unsigned two_of(float low, float high) {
  T a, b;
  store(&a, low);
  store(&b, high);
  return unsigned(a.bits) | unsigned(b.bits) << 16;
}

// Elements from `at` on: one, or eight, which then lie at a multiple of 16 bytes.
template <int kWidth>
__device__ __forceinline__ void load_floats(const Floats& t, int64_t at, float (&x)[kWidth]) {
  if constexpr (kWidth == 1) {
    x[0] = t.type == DType::f32    ? load(static_cast<const float*>(t.p) + at)
           : t.type == DType::bf16 ? load(static_cast<const BFloat16*>(t.p) + at)
                                   : load(static_cast<const Float16*>(t.p) + at);
  } else {
    static_assert(kWidth == 8);
    if (t.type == DType::f32) {
      const float4* const p = reinterpret_cast<const float4*>(static_cast<const float*>(t.p) + at);
      const float4 a = p[0], b = p[1];
      x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
      return;
    }
    const uint4 v = *reinterpret_cast<const uint4*>(static_cast<const unsigned short*>(t.p) + at);
    const unsigned words[4] = {v.x, v.y, v.z, v.w};
    const bool is_bf16 = t.type == DType::bf16;
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = is_bf16 ? bf16_low(words[i]) : f16_low(words[i]);
      x[2 * i + 1] = is_bf16 ? bf16_high(words[i]) : f16_high(words[i]);
    }
  }
}

template <int kWidth>
__device__ __forceinline__ void store_floats(const Floats& t, int64_t at, const float (&x)[kWidth]) {
  if constexpr (kWidth == 1) {
    if (t.type == DType::f32) return store(static_cast<float*>(t.p) + at, x[0]);
    if (t.type == DType::bf16) return store(static_cast<BFloat16*>(t.p) + at, x[0]);
    store(static_cast<Float16*>(t.p) + at, x[0]);
  } else {
    static_assert(kWidth == 8);
    if (t.type == DType::f32) {
      float4* const p = reinterpret_cast<float4*>(static_cast<float*>(t.p) + at);
      p[0] = make_float4(x[0], x[1], x[2], x[3]);
      p[1] = make_float4(x[4], x[5], x[6], x[7]);
      return;
    }
    unsigned words[4];
    for (int i = 0; i < 4; ++i)
      words[i] =
          t.type == DType::bf16 ? two_of<BFloat16>(x[2 * i], x[2 * i + 1]) : two_of<Float16>(x[2 * i], x[2 * i + 1]);
    *reinterpret_cast<uint4*>(static_cast<unsigned short*>(t.p) + at) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// Finishes elements from `at` on, of columns from `col` on, whose products are x.
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
    for (int i = 0; i < kWidth; ++i) other[i] = activate(e.f, other[i]) * x[i];
    store_floats(e.act, at, other);
  } else if constexpr (kKind == Kind::activate_backward) {
    load_floats(e.pre, at, other);
    for (int i = 0; i < kWidth; ++i) x[i] *= activation_slope(e.f, other[i]);
  } else if constexpr (kKind == Kind::gated_backward) {
    float dgate[kWidth];
    load_floats(e.gate, at, other);
    load_floats(e.up, at, dgate);
    for (int i = 0; i < kWidth; ++i) {
      dgate[i] *= x[i] * activation_slope(e.f, other[i]);
      x[i] *= activate(e.f, other[i]);
    }
    store_floats(e.dgate, at, dgate);
  }
  if (e.y.p) store_floats(e.y, at, x);
}

// The same for kernels that finish an element now and then.
__device__ __forceinline__ void finish(const Finish& e, int64_t at, int64_t col, float product) {
  using Kind = Epilogue::Kind;
  float x[1] = {product};
  switch (e.kind) {
    case Kind::none: return finish_as<Kind::none>(e, at, col, x);
    case Kind::activate: return finish_as<Kind::activate>(e, at, col, x);
    case Kind::gated: return finish_as<Kind::gated>(e, at, col, x);
    case Kind::activate_backward: return finish_as<Kind::activate_backward>(e, at, col, x);
    case Kind::gated_backward: return finish_as<Kind::gated_backward>(e, at, col, x);
  }
}

}  // namespace weft::cuda
