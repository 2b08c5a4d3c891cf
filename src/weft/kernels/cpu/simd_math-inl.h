// Vector math for CPU kernels: exp, tanh, erf, sigmoid, activations with derivatives, loads and stores.
//
// Use it in a file compiled once per instruction set:
//
//   #include "weft/kernels/cpu/simd_targets.h"
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "weft/kernels/cpu/this_file.cpp"
//   #include "hwy/foreach_target.h"  // must come before highway.h
//   #include "hwy/highway.h"
//   #include "weft/kernels/cpu/simd_math-inl.h"
//   HWY_BEFORE_NAMESPACE();
//   namespace weft::cpu::HWY_NAMESPACE { ... }
//   HWY_AFTER_NAMESPACE();
//   #if HWY_ONCE ... HWY_EXPORT, HWY_DYNAMIC_DISPATCH ... #endif
//
// Vectors are f32; relative errors are below 1e-6 where not said otherwise; NaN stays NaN.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "weft/kernels/kernels.h"

#if defined(WEFT_KERNELS_CPU_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_SIMD_MATH_INL_H_
#undef WEFT_KERNELS_CPU_SIMD_MATH_INL_H_
#else
#define WEFT_KERNELS_CPU_SIMD_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32Tag = hn::ScalableTag<float>;
using F32 = hn::Vec<F32Tag>;

// ---- loads and stores: memory is f32, bf16 or f16 without alignment; 16 bits are rounded to nearest even ----

template <class D>
using U16Tag = hn::Rebind<uint16_t, D>;

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BFloat16* p) {
  const U16Tag<D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

// The upper halves of x rounded to nearest even, as 16-bit lanes.
template <class D>
HWY_INLINE hn::Vec<U16Tag<D>> round_to_bf16(D, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> di32;
  const auto u = hn::BitCast(d32, x);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(d32, 1));
  const auto rounded = hn::Add(u, hn::Add(odd, hn::Set(d32, 0x7fff)));
  const auto quiet = hn::Or(u, hn::Set(d32, 0x400000));
  const auto bits = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(x)), quiet, rounded);
  return hn::DemoteTo(U16Tag<D>(), hn::BitCast(di32, hn::ShiftRight<16>(bits)));
}

template <class D>
HWY_INLINE void store(hn::Vec<D> x, D d, float* p) {
  hn::StoreU(x, d, p);
}

template <class D>
HWY_INLINE void store(hn::Vec<D> x, D d, BFloat16* p) {
  hn::StoreU(round_to_bf16(d, x), U16Tag<D>(), reinterpret_cast<uint16_t*>(p));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Float16* p) {
  const auto bits = hn::LoadU(U16Tag<D>(), reinterpret_cast<const uint16_t*>(p));
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
}

template <class D>
HWY_INLINE void store(hn::Vec<D> x, D, Float16* p) {
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::BitCast(U16Tag<D>(), hn::DemoteTo(d16, x)), U16Tag<D>(), reinterpret_cast<uint16_t*>(p));
}

// The first n < Lanes(d) elements; the other lanes are zero.
template <class D>
HWY_INLINE hn::Vec<D> load_first(D d, const float* p, size_t n) {
  return hn::MaskedLoad(hn::FirstN(d, n), d, p);
}

template <class D, class T>  // of 16 bits
HWY_INLINE hn::Vec<D> load_first(D d, const T* p, size_t n) {
  alignas(64) T all[hn::MaxLanes(d)] = {};
  for (size_t i = 0; i < n; ++i) all[i] = p[i];
  return load(d, all);
}

template <class D>
HWY_INLINE void store_first(hn::Vec<D> x, D d, float* p, size_t n) {
  hn::BlendedStore(x, hn::FirstN(d, n), d, p);
}

template <class D, class T>
HWY_INLINE void store_first(hn::Vec<D> x, D d, T* p, size_t n) {
  alignas(64) T all[hn::MaxLanes(d)];
  store(x, d, all);
  for (size_t i = 0; i < n; ++i) p[i] = all[i];
}

// ---- elementary functions ----

// p[0] + p[1] x + p[2] x^2 + ...
template <class D, size_t N>
HWY_INLINE hn::Vec<D> polynomial(D d, hn::Vec<D> x, const float (&p)[N]) {
  auto y = hn::Set(d, p[N - 1]);
  for (size_t i = N - 1; i-- > 0;) y = hn::MulAdd(y, x, hn::Set(d, p[i]));
  return y;
}

// Results below 2^-125 become 0, and so does exp(-inf); above the range of f32 they are infinite.
template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);  // ln 2 in two parts
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // Minimax fit of (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2.
  const auto p = polynomial(d, r, {0.5f, 0.166665734f, 0.0416665501f, 0.00836377387f, 0.00139269266f});
  const auto one = hn::Set(d, 1.0f);
  const auto mantissa = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), one);  // in [0.7, 1.42)
  // 2 * 2^(n-1): 2^128 itself is no f32.
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::NearestInt(n), hn::Set(di, 126)));
  auto y = hn::Mul(hn::Add(mantissa, mantissa), hn::BitCast(d, exponent));
  y = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -86.6f)), y);
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.8f)), hn::Inf(d), y);
}

// exp for x <= 0 and NaN, a little cheaper.
template <class D>
HWY_INLINE hn::Vec<D> exp_nonpositive(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  const auto p = polynomial(d, r, {0.5f, 0.166665734f, 0.0416665501f, 0.00836377387f, 0.00139269266f});
  const auto mantissa = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::NearestInt(n), hn::Set(di, 127)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -86.6f)), hn::Mul(mantissa, hn::BitCast(d, exponent)));
}

// s = 1 / (1 + exp(-x)) and its complement 1 - s, both without cancellation.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x, hn::Vec<D>& complement) {
  const auto one = hn::Set(d, 1.0f);
  const auto e = exp_nonpositive(d, hn::Neg(hn::Abs(x)));
  const auto large = hn::Div(one, hn::Add(one, e));
  const auto small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, hn::Zero(d));
  complement = hn::IfThenElse(negative, large, small);
  return hn::IfThenElse(negative, small, large);
}

template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  hn::Vec<D> complement;
  return sigmoid(d, x, complement);
}

template <class D>
HWY_INLINE hn::Vec<D> tanh(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto s = hn::Mul(x, x);
  // Minimax fit of (tanh(x) / x - 1) / x^2 on |x| <= 0.6.
  const auto p = polynomial(d, s, {-0.333333303f, 0.133329154f, -0.0538739488f, 0.021110959f, -0.00626911972f});
  const auto near = hn::MulAdd(hn::Mul(p, s), x, x);
  const auto size = hn::Abs(x);
  const auto e = exp_nonpositive(d, hn::Mul(size, hn::Set(d, -2.0f)));
  const auto far = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.6f)), near, far);
}

// erfc(t) of t >= 0, given e = exp(-t^2). Minimax fit of exp(t^2) erfc(t) (1 + 0.4 t) in 1 / (1 + 0.4 t).
template <class D>
HWY_INLINE hn::Vec<D> erfc_of_positive(D d, hn::Vec<D> t, hn::Vec<D> e) {
  const auto one = hn::Set(d, 1.0f);
  const auto w = hn::Div(one, hn::MulAdd(t, hn::Set(d, 0.4f), one));
  const auto p = polynomial(d, w,
                            {0.225675901f, 0.225664628f, 0.207944658f, 0.167746286f, 0.144481336f, -0.0119615726f,
                             0.176427926f, -0.187325505f, 0.0513464851f});
  return hn::Mul(e, hn::Mul(w, p));
}

template <class D>
HWY_INLINE hn::Vec<D> erf(D d, hn::Vec<D> x) {
  const auto s = hn::Mul(x, x);
  // Minimax fit of erf(x) / x on |x| <= 1.
  const auto p = polynomial(
      d, s,
      {1.12837917f, -0.376126267f, 0.112835947f, -0.026854212f, 0.00518908742f, -0.000801686429f, 7.87587506e-5f});
  const auto size = hn::Abs(x);
  const auto tail = erfc_of_positive(d, size, exp_nonpositive(d, hn::Neg(s)));
  const auto far = hn::CopySign(hn::Sub(hn::Set(d, 1.0f), tail), x);
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 1.0f)), hn::Mul(x, p), far);
}

// ---- activations ----

// Of the gate, and of what it multiplies.
template <Activation kF>
inline constexpr bool kHasLimit = kF == Activation::swiglu_oai || kF == Activation::swiglu_clipped;
template <Activation kF>
inline constexpr float kLimitOf = kF == Activation::swiglu_oai ? kOaiLimit : kClippedLimit;

// f(x) and f'(x).
template <Activation kF, class D>
HWY_INLINE void activate(D d, hn::Vec<D> x, hn::Vec<D>& value, hn::Vec<D>& derivative) {
  const auto zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  if constexpr (kF == Activation::relu) {
    value = hn::IfThenZeroElse(hn::Lt(x, zero), x);
    derivative = hn::IfThenElseZero(hn::Gt(x, zero), one);
  } else if constexpr (kF == Activation::relu_squared) {
    const auto positive = hn::IfThenZeroElse(hn::Lt(x, zero), x);
    value = hn::Mul(positive, positive);
    derivative = hn::Add(positive, positive);
  } else if constexpr (kF == Activation::silu) {
    hn::Vec<D> complement;
    const auto s = sigmoid(d, x, complement);
    value = hn::Mul(x, s);
    derivative = hn::MulAdd(value, complement, s);
  } else if constexpr (kF == Activation::identity) {
    value = x;
    derivative = one;
  } else if constexpr (kF == Activation::sigmoid) {
    hn::Vec<D> complement;
    value = sigmoid(d, x, complement);
    derivative = hn::Mul(value, complement);
  } else if constexpr (kF == Activation::tanh) {
    // 1 - tanh(x)^2 without the cancellation
    hn::Vec<D> complement;
    const auto s = sigmoid(d, hn::Add(x, x), complement);
    value = tanh(d, x);
    derivative = hn::Mul(hn::Mul(s, complement), hn::Set(d, 4.0f));
  } else if constexpr (kHasLimit<kF>) {
    const auto limit = hn::Set(d, kLimitOf<kF>);
    const auto is_beyond = hn::Gt(x, limit);  // what is no number stays
    constexpr Activation kInside = kF == Activation::swiglu_oai ? Activation::gelu_quick : Activation::silu;
    activate<kInside>(d, hn::IfThenElse(is_beyond, limit, x), value, derivative);
    derivative = hn::IfThenZeroElse(is_beyond, derivative);
  } else if constexpr (kF == Activation::gelu_quick) {
    const auto steep = hn::Set(d, 1.702f);
    hn::Vec<D> complement;
    const auto s = sigmoid(d, hn::Mul(x, steep), complement);
    value = hn::Mul(x, s);
    derivative = hn::MulAdd(hn::Mul(value, steep), complement, s);
  } else if constexpr (kF == Activation::gelu_tanh) {
    // (1 + tanh(u)) / 2 = sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3)
    const auto s2 = hn::Mul(x, x);
    const auto slope = hn::MulAdd(s2, hn::Set(d, 2 * 0.79788456f * 0.044715f), hn::Set(d, 2 * 0.79788456f));
    hn::Vec<D> complement;
    const auto s = sigmoid(d, hn::Mul(x, slope), complement);
    value = hn::Mul(x, s);
    const auto du = hn::MulAdd(s2, hn::Set(d, 6 * 0.79788456f * 0.044715f), hn::Set(d, 2 * 0.79788456f));
    derivative = hn::MulAdd(value, hn::Mul(complement, du), s);
  } else {
    // x cdf(x) of the normal distribution
    const auto e = exp_nonpositive(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
    const auto t = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678f));
    const auto tail = hn::Mul(erfc_of_positive(d, t, e), hn::Set(d, 0.5f));
    const auto cdf = hn::IfThenElse(hn::Lt(x, zero), tail, hn::Sub(one, tail));
    value = hn::Mul(x, cdf);
    derivative = hn::MulAdd(hn::Mul(x, hn::Set(d, 0.39894228f)), e, cdf);
  }
}

// f(x); the derivative's work is left out by the compiler.
template <Activation kF, class D>
HWY_INLINE hn::Vec<D> activate(D d, hn::Vec<D> x) {
  hn::Vec<D> value, derivative;
  activate<kF>(d, x, value, derivative);
  return value;
}

// What a gate f(g) multiplies by, and x times its derivative.
template <Activation kF, class D>
HWY_INLINE hn::Vec<D> gating_up(D d, hn::Vec<D> up) {
  if constexpr (!kHasLimit<kF>) return up;
  const auto limit = hn::Set(d, kLimitOf<kF>);
  const auto held = hn::IfThenElse(hn::Gt(hn::Abs(up), limit), hn::CopySign(limit, up), up);
  return kF == Activation::swiglu_oai ? hn::Add(held, hn::Set(d, 1.0f)) : held;
}
template <Activation kF, class D>
HWY_INLINE hn::Vec<D> gating_gradient(D d, hn::Vec<D> up, hn::Vec<D> x) {
  if constexpr (!kHasLimit<kF>) return x;
  return hn::IfThenZeroElse(hn::Gt(hn::Abs(up), hn::Set(d, kLimitOf<kF>)), x);
}

// Calls body(std::integral_constant<Activation, f>()), to choose f outside of loops.
template <class Body>
HWY_INLINE void with_activation(Activation f, Body&& body) {
  switch (f) {
    case Activation::gelu: return body(std::integral_constant<Activation, Activation::gelu>());
    case Activation::gelu_tanh: return body(std::integral_constant<Activation, Activation::gelu_tanh>());
    case Activation::relu: return body(std::integral_constant<Activation, Activation::relu>());
    case Activation::relu_squared: return body(std::integral_constant<Activation, Activation::relu_squared>());
    case Activation::silu: return body(std::integral_constant<Activation, Activation::silu>());
    case Activation::gelu_quick: return body(std::integral_constant<Activation, Activation::gelu_quick>());
    case Activation::swiglu_oai: return body(std::integral_constant<Activation, Activation::swiglu_oai>());
    case Activation::swiglu_clipped: return body(std::integral_constant<Activation, Activation::swiglu_clipped>());
    case Activation::sigmoid: return body(std::integral_constant<Activation, Activation::sigmoid>());
    case Activation::tanh: return body(std::integral_constant<Activation, Activation::tanh>());
    case Activation::identity: return body(std::integral_constant<Activation, Activation::identity>());
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once per target
