// Masters in two halves and back.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/masters.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/masters-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// Calls body(i, part) for the vectors that cover all elements.
template <class Body>
void each_master(Stream& stream, int64_t count, const Body& body) {
  constexpr int64_t kBytes = 2 + 2 + 4;
  stream.team().parallel_for(count, elements_per_chunk(kBytes), [&](int64_t begin, int64_t end, int) {
    for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR { body(begin + i, part); });
  });
}

void split_masters(Stream& stream, const Tensor& upper, const Tensor& lower, const Tensor& x) {
  const SplitMasters masters = split_masters_of(upper, lower);
  const float* const from = x.data<float>();
  each_master(stream, x.numel(),
              [&](int64_t i, auto part) HWY_ATTR { masters.store_at(i, load(F32Tag(), from + i, part), part); });
}

void join_masters(Stream& stream, const Tensor& x, const Tensor& upper, const Tensor& lower) {
  const SplitMasters masters = split_masters_of(upper, lower);
  float* const to = x.data<float>();
  each_master(stream, x.numel(),
              [&](int64_t i, auto part) HWY_ATTR { store(masters.load_at(i, part), F32Tag(), to + i, part); });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(split_masters);
HWY_EXPORT(join_masters);

void split_masters(Stream& stream, const Tensor& upper, const Tensor& lower, const Tensor& x) {
  shapes::check_halves("split_masters", upper, lower, x);
  HWY_DYNAMIC_DISPATCH(split_masters)(stream, upper, lower, x);
}

void join_masters(Stream& stream, const Tensor& x, const Tensor& upper, const Tensor& lower) {
  shapes::check_halves("join_masters", upper, lower, x);
  HWY_DYNAMIC_DISPATCH(join_masters)(stream, x, upper, lower);
}

}  // namespace weft::cpu
#endif
