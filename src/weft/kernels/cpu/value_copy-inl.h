// with_value: the optional copy of a master in the compute dtype, as a pointer; include like simd_loop-inl.h.
#include "weft/kernels/cpu/simd_loop-inl.h"

#if defined(WEFT_KERNELS_CPU_VALUE_COPY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_VALUE_COPY_INL_H_
#undef WEFT_KERNELS_CPU_VALUE_COPY_INL_H_
#else
#define WEFT_KERNELS_CPU_VALUE_COPY_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// Calls body(pointer to the value's elements), which is null where there is no value.
template <class Body>
HWY_INLINE void with_value(std::string_view op, const Tensor& value, Body&& body) {
  if (!value) return body(static_cast<float*>(nullptr));
  switch (value.dtype()) {
    case DType::f32: return body(value.data<float>());
    case DType::bf16: return body(value.data<BFloat16>());
    case DType::f16: return body(value.data<Float16>());
    default:
      throw Error("{}: the value holds {}, but must be a copy in f32, bf16 or f16", op, name_of(value.dtype()));
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once per target
