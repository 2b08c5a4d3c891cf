// reduce: plain loops over blocks that stay in the first-level cache, compiled for each instruction set.
#include "weft/comm/shared/reduce.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "weft/base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/comm/shared/reduce.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {

constexpr int64_t kBlock = 1024;  // elements: 4 KiB of f32 sums

// How an element type is read, folded and rounded. Branch-free, so that the loops become vector code.
template <class Stored, class Wide = Stored>
struct Number {
  using stored = Stored;
  using wide = Wide;
  static wide widen(stored x) { return x; }
  static stored narrow(wide x) { return x; }
  static wide add(wide a, wide b) {
    if constexpr (std::is_integral_v<wide>) {
      using U = std::make_unsigned_t<wide>;
      return wide(U(a) + U(b));  // wraps
    } else {
      return a + b;
    }
  }
  static wide max(wide a, wide b) { return (b > a || b != b) ? b : a; }
  static wide min(wide a, wide b) { return (b < a || b != b) ? b : a; }
};

struct Bf16 : Number<uint16_t, float> {
  static float widen(uint16_t x) { return std::bit_cast<float>(uint32_t(x) << 16); }
  static uint16_t narrow(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, nan = (u >> 16) | 0x40u;
    return uint16_t((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
  }
};

struct F16 : Number<uint16_t, float> {
  static float widen(uint16_t x) {
    const uint32_t magnitude = uint32_t(x & 0x7fffu) << 13, sign = uint32_t(x & 0x8000u) << 16;
    const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    const uint32_t special = magnitude | 0x7f800000u;  // infinity and NaN
    return std::bit_cast<float>(((x & 0x7c00u) == 0x7c00u ? special : scaled) | sign);
  }
  static uint16_t narrow(float x) {  // as Float16::to_bits
    const uint32_t u = std::bit_cast<uint32_t>(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    uint32_t bits = magnitude < 0x38800000u ? small : normal;
    bits = magnitude >= 0x477ff000u ? 0x7c00u : bits;
    bits = magnitude > 0x7f800000u ? 0x7e00u : bits;
    return uint16_t(sign | bits);
  }
};

template <class N, Reduction R>
typename N::wide fold(typename N::wide a, typename N::wide b) {
  if constexpr (R == Reduction::sum) return N::add(a, b);
  if constexpr (R == Reduction::max) return N::max(a, b);
  if constexpr (R == Reduction::min) return N::min(a, b);
}

// Two ranks' buffers, both of which get the result.
template <class N, Reduction R>
void reduce_pair(typename N::stored* __restrict a, typename N::stored* __restrict b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const typename N::stored y = N::narrow(fold<N, R>(N::widen(a[i]), N::widen(b[i])));
    a[i] = y;
    b[i] = y;
  }
}

template <class N>
void load_block(typename N::wide* __restrict sum, const typename N::stored* __restrict x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = N::widen(x[i]);
}

template <class N, Reduction R>
void fold_block(typename N::wide* __restrict sum, const typename N::stored* __restrict x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = fold<N, R>(sum[i], N::widen(x[i]));
}

template <class N>
void store_block(typename N::stored* __restrict y, const typename N::wide* __restrict sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = N::narrow(sum[i]);
}

template <class N, Reduction R>
void reduce_blocks(std::span<std::byte* const> out, std::span<const std::byte* const> in, int64_t count) {
  using T = typename N::stored;
  if (in.size() == 2 && out.size() == 2 && in[0] == out[0] && in[1] == out[1])
    return reduce_pair<N, R>(reinterpret_cast<T*>(out[0]), reinterpret_cast<T*>(out[1]), count);
  alignas(64) typename N::wide sum[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t block = std::min(kBlock, count - begin);
    load_block<N>(sum, reinterpret_cast<const T*>(in[0]) + begin, block);
    for (size_t r = 1; r < in.size(); ++r) fold_block<N, R>(sum, reinterpret_cast<const T*>(in[r]) + begin, block);
    for (std::byte* const y : out) store_block<N>(reinterpret_cast<T*>(y) + begin, sum, block);
  }
}

template <class N>
void reduce_numbers(Reduction reduction, std::span<std::byte* const> out, std::span<const std::byte* const> in,
                    int64_t count) {
  switch (reduction) {
    case Reduction::sum: return reduce_blocks<N, Reduction::sum>(out, in, count);
    case Reduction::max: return reduce_blocks<N, Reduction::max>(out, in, count);
    case Reduction::min: return reduce_blocks<N, Reduction::min>(out, in, count);
  }
}

void reduce_target(DType dtype, Reduction reduction, std::span<std::byte* const> out,
                   std::span<const std::byte* const> in, int64_t count) {
  switch (dtype) {
    case DType::f64: return reduce_numbers<Number<double>>(reduction, out, in, count);
    case DType::f32: return reduce_numbers<Number<float>>(reduction, out, in, count);
    case DType::bf16: return reduce_numbers<Bf16>(reduction, out, in, count);
    case DType::f16: return reduce_numbers<F16>(reduction, out, in, count);
    case DType::i64: return reduce_numbers<Number<int64_t>>(reduction, out, in, count);
    case DType::i32: return reduce_numbers<Number<int32_t>>(reduction, out, in, count);
    default: check(false, "no reduction of {}", name_of(dtype));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft {

HWY_EXPORT(reduce_target);

void reduce(DType dtype, Reduction reduction, std::span<std::byte* const> out, std::span<const std::byte* const> in,
            int64_t count) {
  HWY_DYNAMIC_DISPATCH(reduce_target)(dtype, reduction, out, in, count);
}

}  // namespace weft
#endif
