// xIELU, and its gradients: memory bounds both.
#include <algorithm>
#include <cmath>

#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/xielu.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

inline float softplus_of(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

struct Alphas {
  float positive, negative;
};
template <class T>
Alphas alphas_of(const Tensor& positive, const Tensor& negative) {
  return {softplus_of(float(*positive.data<T>())), 0.5f + softplus_of(float(*negative.data<T>()))};
}

// exp(x) - 1 - x of x <= 0, without cancellation near 0.
template <class D>
HWY_INLINE hn::Vec<D> exp_gap(D d, hn::Vec<D> x) {
  // Taylor's series of (exp(x) - 1 - x) / x^2.
  const auto p = polynomial(d, x, {0.5f, 1 / 6.0f, 1 / 24.0f, 1 / 120.0f, 1 / 720.0f, 1 / 5040.0f, 1 / 40320.0f});
  const auto far = hn::Sub(hn::Sub(exp_nonpositive(d, x), hn::Set(d, 1.0f)), x);
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, -0.5f)), hn::Mul(p, hn::Mul(x, x)), far);
}

void xielu(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& positive, const Tensor& negative) {
  with_dtype("xielu", x, [&](auto element) {
    using T = decltype(element);
    const Alphas alpha = alphas_of<T>(positive, negative);
    const auto body = [&](int64_t begin, int64_t end, int) {
      const F32Tag d;
      const auto zero = hn::Zero(d), half = hn::Set(d, 0.5f);
      const T* in = x.data<T>() + begin;
      T* out = y.data<T>() + begin;
      for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
        const auto v = load(d, in + i, part), above = hn::IfThenZeroElse(hn::Lt(v, zero), v);
        const auto below = hn::IfThenZeroElse(hn::Gt(v, zero), v);
        const auto curve = hn::MulAdd(hn::Set(d, alpha.positive), hn::Mul(above, above),
                                      hn::Mul(hn::Set(d, alpha.negative), exp_gap(d, below)));
        store(hn::MulAdd(half, v, curve), d, out + i, part);
      });
    };
    stream.team().parallel_for(x.numel(), elements_per_chunk(2 * int64_t(sizeof(T))), body);
  });
}

template <class T>
HWY_INLINE void xielu_row_backward(T* dx, const T* dy, const T* x, int64_t cols, const Alphas& alpha, float& positive,
                                   float& negative) {
  const F32Tag d;
  const auto zero = hn::Zero(d), half = hn::Set(d, 0.5f);
  const auto of_above = hn::Set(d, 2 * alpha.positive), of_below = hn::Set(d, alpha.negative);
  auto dp = zero, dn = zero;
  for_each_vector(cols, [&](int64_t i, auto part) HWY_ATTR {
    const auto v = load(d, x + i, part), gradient = load(d, dy + i, part);
    const auto above = hn::IfThenZeroElse(hn::Lt(v, zero), v), below = hn::IfThenZeroElse(hn::Gt(v, zero), v);
    const auto gap = exp_gap(d, below);
    dp = hn::MulAdd(gradient, hn::Mul(above, above), dp);
    dn = hn::MulAdd(gradient, gap, dn);
    const auto slope = hn::MulAdd(of_above, above, hn::MulAdd(of_below, hn::Add(gap, below), half));
    store(hn::Mul(gradient, slope), d, dx + i, part);
  });
  positive = sum_of_lanes(dp), negative = sum_of_lanes(dn);
}

void xielu_backward(Stream& stream, const Tensor& dx, const Tensor& dpositive, const Tensor& dnegative,
                    const Tensor& dy, const Tensor& x, const Tensor& positive, const Tensor& negative) {
  const int64_t cols = x.cols();
  with_dtype("xielu_backward", x, [&](auto element) {
    using T = decltype(element);
    const Alphas alpha = alphas_of<T>(positive, negative);
    // The slope of softplus.
    const auto slope = [](float at) { return 1 / (1 + std::exp(-at)); };
    const float of_positive = slope(float(*positive.data<T>())), of_negative = slope(float(*negative.data<T>()));
    const auto body = [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        float dp = 0, dn = 0;
        xielu_row_backward(dx.data<T>() + t * cols, dy.data<T>() + t * cols, x.data<T>() + t * cols, cols, alpha, dp,
                           dn);
        if (!dpositive) continue;
        dpositive.data<float>()[t] = dp * of_positive, dnegative.data<float>()[t] = dn * of_negative;
      }
    };
    stream.team().parallel_for(x.rows(), rows_per_chunk(3 * cols * int64_t(sizeof(T))), body);
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(xielu);
HWY_EXPORT(xielu_backward);

void xielu(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& positive, const Tensor& negative) {
  shapes::check_xielu(y, x, positive, negative);
  HWY_DYNAMIC_DISPATCH(xielu)(stream, y, x, positive, negative);
}

void xielu_backward(Stream& stream, const Tensor& dx, const Tensor& dpositive, const Tensor& dnegative,
                    const Tensor& dy, const Tensor& x, const Tensor& positive, const Tensor& negative) {
  shapes::check_xielu_backward(dx, dpositive, dnegative, dy, x, positive, negative);
  HWY_DYNAMIC_DISPATCH(xielu_backward)(stream, dx, dpositive, dnegative, dy, x, positive, negative);
}

}  // namespace weft::cpu
#endif
