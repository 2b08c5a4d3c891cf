// Philox4x32-10 for a vector of counters, bit for bit that of base/philox.h; include like simd_math-inl.h.
#include "hwy/highway.h"
#include "weft/kernels/kernels.h"

#if defined(WEFT_KERNELS_CPU_SIMD_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_SIMD_PHILOX_INL_H_
#undef WEFT_KERNELS_CPU_SIMD_PHILOX_INL_H_
#else
#define WEFT_KERNELS_CPU_SIMD_PHILOX_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The keys of the ten rounds, made once per kernel and read from memory: there are more than registers.
struct PhiloxRounds {
  PhiloxRounds(uint64_t key, uint64_t high) : counter_high(high) {
    uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
      keys[round][0] = k0, keys[round][1] = k1;
  }
  uint64_t keys[10][2];
  uint64_t counter_high;
};

// The lower 32 bits of each lane are philox(key, counter, counter_high)[0]; the upper 32 are undefined. Words live in
// 64-bit lanes whose upper halves hold anything: only the lower ones enter a product.
template <class D64>
HWY_INLINE hn::Vec<D64> philox_first_word(D64 d, const PhiloxRounds& rounds, hn::Vec<D64> counter) {
  const hn::Repartition<uint32_t, D64> d32;
  const auto multiply = [d32](hn::Vec<D64> a, uint32_t b)
                            HWY_ATTR { return hn::MulEven(hn::BitCast(d32, a), hn::Set(d32, b)); };
  auto c0 = counter, c1 = hn::ShiftRight<32>(counter);
  auto c2 = hn::Set(d, rounds.counter_high), c3 = hn::Set(d, rounds.counter_high >> 32);
  HWY_UNROLL(10)
  for (int round = 0; round < 10; ++round) {
    const auto p0 = multiply(c0, 0xD2511F53u), p1 = multiply(c2, 0xCD9E8D57u);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, rounds.keys[round][0]));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, rounds.keys[round][1]));
    c1 = p1;
    c3 = p0;
  }
  return c0;
}

// What dropout asks for each element; made once per kernel.
struct DropoutRounds {
  explicit DropoutRounds(const DropoutKey& key)
      : philox(key.seed, key.stream), threshold(int32_t(std::ceil(double(key.p) * 0x1p24))) {}
  PhiloxRounds philox;
  int32_t threshold;  // k * 2^-24 >= p exactly when k >= this
};

// Which of the elements first, first + 1, ... dropout keeps.
template <class D>
HWY_INLINE hn::Mask<D> dropout_keeps(D, const DropoutRounds& rounds, uint64_t first) {
  const hn::RebindToUnsigned<D> d32;
  const hn::Repartition<uint64_t, D> d64;
  const auto low = hn::Add(hn::Iota(d64, 0), hn::Set(d64, first));
  const auto high = hn::Add(low, hn::Set(d64, hn::Lanes(d64)));
  const auto low_bits = philox_first_word(d64, rounds.philox, low);
  const auto high_bits = philox_first_word(d64, rounds.philox, high);
  const auto bits = hn::ConcatEven(d32, hn::BitCast(d32, high_bits), hn::BitCast(d32, low_bits));
  // 24-bit numbers compare as signed as well.
  const hn::RebindToSigned<D> di32;
  const auto uniform = hn::BitCast(di32, hn::ShiftRight<8>(bits));
  return hn::RebindMask(D(), hn::Gt(uniform, hn::Set(di32, rounds.threshold - 1)));
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once per target
