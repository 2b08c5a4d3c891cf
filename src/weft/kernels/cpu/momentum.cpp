// SGD with momentum, and Lion: one pass over a parameter's state.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/momentum.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/masters-inl.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

template <class Masters>
void sgd_range(const SgdArgs& args, const Masters& masters, int64_t begin, int64_t end) {
  const F32Tag d;
  const auto grad_scale = hn::Set(d, args.grad_scale), momentum = hn::Set(d, args.momentum);
  const auto lr = hn::Set(d, args.lr), decay = hn::Set(d, args.weight_decay);
  float* m = args.m ? args.m.data<float>() + begin : nullptr;
  const float* grad = args.grad.data<float>() + begin;
  for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
    const auto g = hn::Mul(load(d, grad + i, part), grad_scale);
    auto update = g;
    if (m) {
      const auto new_m = hn::MulAdd(momentum, load(d, m + i, part), g);
      store(new_m, d, m + i, part);
      update = args.nesterov ? hn::MulAdd(momentum, new_m, g) : new_m;
    }
    const auto old = masters.load_at(begin + i, part);
    masters.store_at(begin + i, hn::NegMulAdd(lr, hn::MulAdd(decay, old, update), old), part);
  });
}

template <class Masters>
void lion_range(const LionArgs& args, const Masters& masters, int64_t begin, int64_t end) {
  const F32Tag d;
  const auto grad_scale = hn::Set(d, args.grad_scale), beta1 = hn::Set(d, args.beta1), beta2 = hn::Set(d, args.beta2);
  const auto rest1 = hn::Set(d, float(1 - double(args.beta1))), rest2 = hn::Set(d, float(1 - double(args.beta2)));
  const auto lr = hn::Set(d, args.lr), decay = hn::Set(d, args.weight_decay), soft = hn::Set(d, args.softness);
  float* m = args.m.data<float>() + begin;
  const float* grad = args.grad.data<float>() + begin;
  for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
    const auto g = hn::Mul(load(d, grad + i, part), grad_scale), old_m = load(d, m + i, part);
    const auto c = hn::MulAdd(beta1, old_m, hn::Mul(rest1, g));
    store(hn::MulAdd(beta2, old_m, hn::Mul(rest2, g)), d, m + i, part);
    const auto is_zero = hn::Eq(c, hn::Zero(d));
    const auto update = hn::IfThenZeroElse(is_zero, hn::Div(c, hn::Add(hn::Abs(c), soft)));
    const auto old = masters.load_at(begin + i, part);
    masters.store_at(begin + i, hn::NegMulAdd(lr, hn::MulAdd(decay, old, update), old), part);
  });
}

void sgd(Stream& stream, const SgdArgs& args) {
  with_master("sgd", args, [&](const auto& masters) {
    stream.team().parallel_for(args.master.numel(), elements_per_chunk(4 * 5 + 2),
                               [&](int64_t begin, int64_t end, int) { sgd_range(args, masters, begin, end); });
  });
}

void lion(Stream& stream, const LionArgs& args) {
  with_master("lion", args, [&](const auto& masters) {
    stream.team().parallel_for(args.master.numel(), elements_per_chunk(4 * 5 + 2),
                               [&](int64_t begin, int64_t end, int) { lion_range(args, masters, begin, end); });
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(sgd);
HWY_EXPORT(lion);

void sgd(Stream& stream, const SgdArgs& args) {
  shapes::check_sgd(args);
  HWY_DYNAMIC_DISPATCH(sgd)(stream, args);
}

void lion(Stream& stream, const LionArgs& args) {
  shapes::check_lion(args);
  HWY_DYNAMIC_DISPATCH(lion)(stream, args);
}

}  // namespace weft::cpu
#endif
