// Activation functions, their derivatives, and their gated forms.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/activation.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// Calls body(element, f, begin, end) on the team for chunks of the elements of `like`; f is an integral_constant.
template <class Body>
void for_chunks(Stream& stream, std::string_view op, const Tensor& like, Activation f, int64_t num_tensors,
                Body body) {
  with_dtype(op, like, [&](auto element) {
    with_activation(f, [&](auto constant) {
      const int64_t grain = elements_per_chunk(num_tensors * int64_t(sizeof element));
      stream.team().parallel_for(like.numel(), grain,
                                 [&](int64_t begin, int64_t end, int) { body(element, constant, begin, end); });
    });
  });
}

void activation(Stream& stream, const Tensor& y, const Tensor& x, Activation f) {
  for_chunks(stream, "activation", x, f, 2, [&](auto element, auto constant, int64_t begin, int64_t end) {
    using T = decltype(element);
    const F32Tag d;
    const T* in = x.data<T>() + begin;
    T* out = y.data<T>() + begin;
    for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
      store(activate<decltype(constant)::value>(d, load(d, in + i, part)), d, out + i, part);
    });
  });
}

void activation_backward(Stream& stream, const Tensor& dx, const Tensor& dy, const Tensor& x, Activation f) {
  for_chunks(stream, "activation_backward", x, f, 3, [&](auto element, auto constant, int64_t begin, int64_t end) {
    using T = decltype(element);
    const F32Tag d;
    const T* in = x.data<T>() + begin;
    const T* gradient = dy.data<T>() + begin;
    T* out = dx.data<T>() + begin;
    for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
      F32 value, slope;
      activate<decltype(constant)::value>(d, load(d, in + i, part), value, slope);
      store(hn::Mul(load(d, gradient + i, part), slope), d, out + i, part);
    });
  });
}

void gated_activation(Stream& stream, const Tensor& y, const Tensor& gate, const Tensor& up, Activation f) {
  for_chunks(stream, "gated_activation", y, f, 3, [&](auto element, auto constant, int64_t begin, int64_t end) {
    using T = decltype(element);
    const F32Tag d;
    const T* gates = gate.data<T>() + begin;
    const T* ups = up.data<T>() + begin;
    T* out = y.data<T>() + begin;
    for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
      constexpr Activation kF = decltype(constant)::value;
      const auto value = activate<kF>(d, load(d, gates + i, part));
      store(hn::Mul(value, gating_up<kF>(d, load(d, ups + i, part))), d, out + i, part);
    });
  });
}

void gated_activation_backward(Stream& stream, const Tensor& dgate, const Tensor& dup, const Tensor& dy,
                               const Tensor& gate, const Tensor& up, Activation f) {
  for_chunks(stream, "gated_activation_backward", dy, f, 5,
             [&](auto element, auto constant, int64_t begin, int64_t end) {
               using T = decltype(element);
               const F32Tag d;
               const T* gates = gate.data<T>() + begin;
               const T* ups = up.data<T>() + begin;
               const T* gradients = dy.data<T>() + begin;
               T* dgates = dgate.data<T>() + begin;
               T* dups = dup.data<T>() + begin;
               for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
                 constexpr Activation kF = decltype(constant)::value;
                 F32 value, slope;
                 activate<kF>(d, load(d, gates + i, part), value, slope);
                 const auto gradient = load(d, gradients + i, part), gated = load(d, ups + i, part);
                 const auto gradient_up = hn::Mul(gradient, gating_up<kF>(d, gated));
                 store(hn::Mul(gradient_up, slope), d, dgates + i, part);
                 store(gating_gradient<kF>(d, gated, hn::Mul(gradient, value)), d, dups + i, part);
               });
             });
}

void softcap(Stream& stream, const Tensor& y, const Tensor& x, float cap) {
  with_dtype("softcap", x, [&](auto element) {
    using T = decltype(element);
    const auto body = [&](int64_t begin, int64_t end, int) {
      const F32Tag d;
      const auto caps = hn::Set(d, cap), inverse = hn::Set(d, 1 / cap);
      const T* in = x.data<T>() + begin;
      T* out = y.data<T>() + begin;
      for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
        store(hn::Mul(caps, tanh(d, hn::Mul(load(d, in + i, part), inverse))), d, out + i, part);
      });
    };
    stream.team().parallel_for(x.numel(), elements_per_chunk(2 * int64_t(sizeof(T))), body);
  });
}

void softcap_backward(Stream& stream, const Tensor& dx, const Tensor& dy, const Tensor& y, float cap) {
  with_dtype("softcap_backward", y, [&](auto element) {
    using T = decltype(element);
    const auto body = [&](int64_t begin, int64_t end, int) {
      const F32Tag d;
      const auto one = hn::Set(d, 1.0f), inverse = hn::Set(d, 1 / cap);
      const T* at = y.data<T>() + begin;
      const T* gradient = dy.data<T>() + begin;
      T* out = dx.data<T>() + begin;
      for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
        const auto t = hn::Mul(load(d, at + i, part), inverse);
        store(hn::Mul(load(d, gradient + i, part), hn::NegMulAdd(t, t, one)), d, out + i, part);
      });
    };
    stream.team().parallel_for(y.numel(), elements_per_chunk(3 * int64_t(sizeof(T))), body);
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(activation);
HWY_EXPORT(activation_backward);
HWY_EXPORT(gated_activation);
HWY_EXPORT(gated_activation_backward);
HWY_EXPORT(softcap);
HWY_EXPORT(softcap_backward);

void activation(Stream& stream, const Tensor& y, const Tensor& x, Activation f) {
  shapes::check_alike("activation", {{"x", x}, {"y", y}});
  HWY_DYNAMIC_DISPATCH(activation)(stream, y, x, f);
}

void activation_backward(Stream& stream, const Tensor& dx, const Tensor& dy, const Tensor& x, Activation f) {
  shapes::check_alike("activation_backward", {{"x", x}, {"dy", dy}, {"dx", dx}});
  HWY_DYNAMIC_DISPATCH(activation_backward)(stream, dx, dy, x, f);
}

void gated_activation(Stream& stream, const Tensor& y, const Tensor& gate, const Tensor& up, Activation f) {
  shapes::check_alike("gated_activation", {{"gate", gate}, {"up", up}, {"y", y}});
  HWY_DYNAMIC_DISPATCH(gated_activation)(stream, y, gate, up, f);
}

void gated_activation_backward(Stream& stream, const Tensor& dgate, const Tensor& dup, const Tensor& dy,
                               const Tensor& gate, const Tensor& up, Activation f) {
  shapes::check_alike("gated_activation_backward",
                      {{"gate", gate}, {"up", up}, {"dy", dy}, {"dgate", dgate}, {"dup", dup}});
  HWY_DYNAMIC_DISPATCH(gated_activation_backward)(stream, dgate, dup, dy, gate, up, f);
}

void softcap(Stream& stream, const Tensor& y, const Tensor& x, float cap) {
  shapes::check_alike("softcap", {{"x", x}, {"y", y}});
  HWY_DYNAMIC_DISPATCH(softcap)(stream, y, x, cap);
}

void softcap_backward(Stream& stream, const Tensor& dx, const Tensor& dy, const Tensor& y, float cap) {
  shapes::check_alike("softcap_backward", {{"y", y}, {"dy", dy}, {"dx", dx}});
  HWY_DYNAMIC_DISPATCH(softcap_backward)(stream, dx, dy, y, cap);
}

}  // namespace weft::cpu
#endif
