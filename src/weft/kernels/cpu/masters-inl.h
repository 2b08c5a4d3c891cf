// with_master: an optimizer's masters as vectors of f32, however they lie; include like simd_loop-inl.h.
#include "weft/kernels/cpu/simd_loop-inl.h"

#if defined(WEFT_KERNELS_CPU_MASTERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MASTERS_INL_H_
#undef WEFT_KERNELS_CPU_MASTERS_INL_H_
#else
#define WEFT_KERNELS_CPU_MASTERS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// The lower 16 bits of the lanes of x.
template <class D, class V>
HWY_INLINE void store_low_bits(V x, D, uint16_t* p, Whole) {
  const hn::RebindToSigned<D> di32;
  const auto low = hn::And(x, hn::Set(hn::RebindToUnsigned<D>(), 0xffff));
  hn::StoreU(hn::DemoteTo(U16Tag<D>(), hn::BitCast(di32, low)), U16Tag<D>(), p);
}
template <class D, class V>
HWY_INLINE void store_low_bits(V x, D d, uint16_t* p, First first) {
  alignas(64) uint16_t all[hn::MaxLanes(d)];
  store_low_bits(x, d, all, Whole{});
  for (size_t i = 0; i < first.n; ++i) p[i] = all[i];
}

// Masters of f32 beside their copy, which may be null.
template <class T>
struct WholeMasters {
  using Value = T;
  float* master;
  T* value;

  template <class Part>
  HWY_INLINE F32 load_at(int64_t i, Part part) const {
    return load(F32Tag(), master + i, part);
  }
  template <class Part>
  HWY_INLINE void store_at(int64_t i, F32 x, Part part) const {
    store(x, F32Tag(), master + i, part);
    if (value) store(x, F32Tag(), value + i, part);
  }
};

// Masters of f32 in two halves; see master_halves.h.
struct SplitMasters {
  using Value = BFloat16;
  BFloat16* upper;
  uint16_t* lower;

  template <class Part>
  HWY_INLINE F32 load_at(int64_t i, Part part) const {
    const F32Tag d;
    const hn::RebindToSigned<F32Tag> d32;
    // 16 bits are loaded into the upper half of a lane, as those of a bf16.
    const auto high = hn::BitCast(d32, load(d, upper + i, part));
    const auto low = hn::BitCast(d32, load(d, reinterpret_cast<const BFloat16*>(lower) + i, part));
    return hn::BitCast(d, hn::Add(high, hn::ShiftRight<16>(low)));
  }
  template <class Part>
  HWY_INLINE void store_at(int64_t i, F32 x, Part part) const {
    const F32Tag d;
    const hn::RebindToUnsigned<F32Tag> d32;
    const auto bits = hn::BitCast(d32, x);
    store_low_bits(bits, d, lower + i, part);
    const auto high = hn::ShiftRight<16>(hn::Add(bits, hn::Set(d32, 0x8000)));
    store_low_bits(high, d, reinterpret_cast<uint16_t*>(upper) + i, part);
  }
};

inline SplitMasters split_masters_of(const Tensor& upper, const Tensor& lower) {
  return {upper.data<BFloat16>(), lower.data<uint16_t>()};
}

// Calls body(WholeMasters or SplitMasters) for any of the optimizers' arguments.
template <class Args, class Body>
HWY_INLINE void with_master(std::string_view op, const Args& args, Body&& body) {
  if (args.master.dtype() == DType::u16) return body(split_masters_of(args.value, args.master));
  float* const master = args.master.template data<float>();
  if (!args.value) return body(WholeMasters<float>{master, nullptr});
  if (args.value.dtype() != DType::f16)
    throw Error("{}: the value holds {}, but must be a copy in f16 or an upper half", op,
                name_of(args.value.dtype()));
  body(WholeMasters<Float16>{master, args.value.template data<Float16>()});
}

// Calls body(pointer to the gradient's elements), which are f32 or of the masters' value.
template <class Masters, class Body>
HWY_INLINE void with_gradient(const Masters&, const Tensor& grad, Body&& body) {
  using Value = typename Masters::Value;
  if constexpr (!std::is_same_v<Value, float>)
    if (grad.dtype() != DType::f32) return body(static_cast<const Value*>(grad.data<Value>()));
  body(static_cast<const float*>(grad.data<float>()));
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once per target
