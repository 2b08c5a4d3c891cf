// Dropout, decided per element by a counter-based random number.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/dropout.cpp"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/cpu/simd_philox-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

void dropout(Stream& stream, const Tensor& y, const Tensor& x, const DropoutKey& key) {
  with_dtype("dropout", x, [&](auto element) {
    using T = decltype(element);
    const DropoutRounds rounds(key);
    const auto body = [&](int64_t begin, int64_t end, int) {
      const F32Tag d;
      const auto factor = hn::Set(d, float(1 / (1 - double(key.p))));
      const T* in = x.data<T>() + begin;
      T* out = y.data<T>() + begin;
      for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
        const auto keeps = dropout_keeps(d, rounds, key.first + uint64_t(begin + i));
        store(hn::IfThenElseZero(keeps, hn::Mul(load(d, in + i, part), factor)), d, out + i, part);
      });
    };
    stream.team().parallel_for(x.numel(), elements_per_chunk(2 * int64_t(sizeof(T))), body);
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(dropout);

void dropout(Stream& stream, const Tensor& y, const Tensor& x, const DropoutKey& key) {
  shapes::check_dropout(y, x, key);
  HWY_DYNAMIC_DISPATCH(dropout)(stream, y, x, key);
}

}  // namespace weft::cpu
#endif
