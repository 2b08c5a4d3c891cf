// AdamW: one pass over a parameter's state.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/adamw.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/masters-inl.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// G: f32, or the type of the masters' value.
template <class Masters, class G>
void adamw_range(const AdamWArgs& args, const Masters& masters, const G* all_grads, int64_t begin, int64_t end) {
  const F32Tag d;
  const auto grad_scale = hn::Set(d, args.grad_scale), beta1 = hn::Set(d, args.beta1), beta2 = hn::Set(d, args.beta2);
  const auto rest1 = hn::Set(d, float(1 - double(args.beta1))), rest2 = hn::Set(d, float(1 - double(args.beta2)));
  const auto correct1 = hn::Set(d, float(1 / double(args.bias_correction1)));
  const auto correct2 = hn::Set(d, float(1 / double(args.bias_correction2)));
  const auto eps = hn::Set(d, args.eps), lr = hn::Set(d, args.lr), decay = hn::Set(d, args.weight_decay);
  float* m = args.m.data<float>() + begin;
  float* v = args.v.data<float>() + begin;
  const G* grad = all_grads + begin;
  for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
    const auto g = hn::Mul(load(d, grad + i, part), grad_scale);
    const auto new_m = hn::MulAdd(beta1, load(d, m + i, part), hn::Mul(rest1, g));
    const auto new_v = hn::MulAdd(beta2, load(d, v + i, part), hn::Mul(rest2, hn::Mul(g, g)));
    store(new_m, d, m + i, part);
    store(new_v, d, v + i, part);
    const auto size = hn::Add(hn::Sqrt(hn::Mul(new_v, correct2)), eps);
    const auto update = hn::Div(hn::Mul(new_m, correct1), size);
    const auto old = masters.load_at(begin + i, part);
    masters.store_at(begin + i, hn::NegMulAdd(lr, hn::MulAdd(decay, old, update), old), part);
  });
}

void adamw(Stream& stream, const AdamWArgs& args) {
  constexpr int64_t kBytes = 4 * 7 + 2;
  with_master("adamw", args, [&](const auto& masters) {
    with_gradient(masters, args.grad, [&](const auto* grad) {
      stream.team().parallel_for(
          args.master.numel(), elements_per_chunk(kBytes),
          [&](int64_t begin, int64_t end, int) { adamw_range(args, masters, grad, begin, end); });
    });
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(adamw);

void adamw(Stream& stream, const AdamWArgs& args) {
  shapes::check_adamw(args);
  HWY_DYNAMIC_DISPATCH(adamw)(stream, args);
}

}  // namespace weft::cpu
#endif
