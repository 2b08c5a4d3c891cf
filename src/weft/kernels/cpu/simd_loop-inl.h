// Loops over rows of f32, bf16 or f16 with one body for whole vectors and for the rest; include like simd_math-inl.h.
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_math-inl.h"

#if defined(WEFT_KERNELS_CPU_SIMD_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_SIMD_LOOP_INL_H_
#undef WEFT_KERNELS_CPU_SIMD_LOOP_INL_H_
#else
#define WEFT_KERNELS_CPU_SIMD_LOOP_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// Which lanes of a vector are elements: all of them, or the first n, where loads fill the others with zeros.
struct Whole {};
struct First {
  size_t n;
};

template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* p, Whole) {
  return load(d, p);
}

template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* p, First first) {
  return load_first(d, p, first.n);
}

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86  // masks of 16-bit lanes: no detour through memory
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BFloat16* p, First first) {
  const U16Tag<D> d16;
  const hn::RebindToUnsigned<D> d32;
  const auto bits = hn::MaskedLoad(hn::FirstN(d16, first.n), d16, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Float16* p, First first) {
  const U16Tag<D> d16;
  const auto bits = hn::MaskedLoad(hn::FirstN(d16, first.n), d16, reinterpret_cast<const uint16_t*>(p));
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
}

template <class D>
HWY_INLINE void store(hn::Vec<D> x, D d, BFloat16* p, First first) {
  const U16Tag<D> d16;
  hn::BlendedStore(round_to_bf16(d, x), hn::FirstN(d16, first.n), d16, reinterpret_cast<uint16_t*>(p));
}

template <class D>
HWY_INLINE void store(hn::Vec<D> x, D d, Float16* p, First first) {
  const U16Tag<D> d16;
  const auto bits = hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), x));
  hn::BlendedStore(bits, hn::FirstN(d16, first.n), d16, reinterpret_cast<uint16_t*>(p));
}
#endif

template <class D, class T>
HWY_INLINE void store(hn::Vec<D> x, D d, T* p, Whole) {
  store(x, d, p);
}

template <class D, class T>
HWY_INLINE void store(hn::Vec<D> x, D d, T* p, First first) {
  store_first(x, d, p, first.n);
}

// x where there are elements, `otherwise` in the other lanes.
template <class D>
HWY_INLINE hn::Vec<D> only_elements(D, hn::Vec<D> x, hn::Vec<D>, Whole) {
  return x;
}

template <class D>
HWY_INLINE hn::Vec<D> only_elements(D d, hn::Vec<D> x, hn::Vec<D> otherwise, First first) {
  return hn::IfThenElse(hn::FirstN(d, first.n), x, otherwise);
}

// Calls body(i, part) for the vectors that cover elements [0, n).
template <class Body>
HWY_INLINE void for_each_vector(int64_t n, Body&& body) {
  const auto lanes = int64_t(hn::Lanes(F32Tag()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, Whole{});
  if (i < n) body(i, First{size_t(n - i)});
}

// The sum over the elements [0, n) of value(i, part), which is 0 in lanes without an element: four sums at a time,
// since one would wait for each addition.
template <class Value>
HWY_INLINE F32 sum_over(int64_t n, Value&& value) {
  const F32Tag d;
  const auto lanes = int64_t(hn::Lanes(d));
  auto a = hn::Zero(d), b = hn::Zero(d), c = hn::Zero(d), e = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Add(a, value(i, Whole{}));
    b = hn::Add(b, value(i + lanes, Whole{}));
    c = hn::Add(c, value(i + 2 * lanes, Whole{}));
    e = hn::Add(e, value(i + 3 * lanes, Whole{}));
  }
  for (; i + lanes <= n; i += lanes) a = hn::Add(a, value(i, Whole{}));
  if (i < n) b = hn::Add(b, value(i, First{size_t(n - i)}));
  return hn::Add(hn::Add(a, b), hn::Add(c, e));
}

HWY_INLINE float sum_of_lanes(F32 x) { return hn::GetLane(hn::SumOfLanes(F32Tag(), x)); }

// Calls body(element of the dtype of t) for the dtypes that the SIMD kernels compute on.
template <class Body>
HWY_INLINE void with_dtype(std::string_view op, const Tensor& t, Body&& body) {
  if (t.dtype() == DType::f32) return body(float());
  if (t.dtype() == DType::bf16) return body(BFloat16());
  if (t.dtype() == DType::f16) return body(Float16());
  throw Error("{}: the cpu kernels compute on f32, bf16 and f16, not on {}; convert the tensor first", op,
              name_of(t.dtype()));
}

// y = the partial sums, added in their order; added to y when accumulate.
inline void add_partial_sums(Stream& stream, float* y, const float* partials, const PartialSums& sums,
                             bool accumulate) {
  stream.team().parallel_for(sums.cols, 1024, [&](int64_t begin, int64_t end, int) {
    const F32Tag d;
    for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
      const int64_t c = begin + i;
      auto sum = hn::Zero(d);
      for (int64_t k = 0; k < sums.count; ++k) sum = hn::Add(sum, load(d, partials + k * sums.stride + c, part));
      store(accumulate ? hn::Add(load(d, y + c, part), sum) : sum, d, y + c, part);
    });
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once per target
