// Rounding of a row of activations to codes of 8 bits, for most types with a scale to each block of 32.
#include <algorithm>
#include <bit>

#include "weft/kernels/cpu/matmul_blocks_types-inl.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_BLOCKS_ROUND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_BLOCKS_ROUND_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_BLOCKS_ROUND_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_BLOCKS_ROUND_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

constexpr int kVectors = 32 / (HWY_MAX_BYTES / 4);  // of a block

template <class T>
HWY_INLINE void load_block(const T* a, int64_t first, int64_t cols, F32 (&x)[kVectors]) {
  const F32Tag f;
  const auto lanes = int64_t(hn::Lanes(f));
  if (first >= 0 && first + 32 <= cols) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) x[v] = load(f, a + first + v * lanes);
    return;
  }
  alignas(64) T values[32] = {};
  for (int64_t i = std::max<int64_t>(0, -first); i < std::min<int64_t>(32, cols - first); ++i)
    values[i] = a[first + i];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) x[v] = load(f, values + v * lanes);
}

// Bits of magnitudes are in the order of numbers, with infinities and NaNs last.
HWY_INLINE I32 magnitude_bits(F32 x) { return hn::BitCast(I32Tag(), hn::Abs(x)); }

// Of numbers of which the largest magnitude has the code 127.
HWY_INLINE CodeScale scale_of(I32 most) {
  return {std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(I32Tag(), most))), 127};
}

HWY_INLINE I32 codes_of(const CodeScale& scale, F32 x) {
  if (scale.inverse == 0) return hn::Zero(I32Tag());
  return hn::NearestInt(hn::Mul(x, hn::Set(F32Tag(), scale.inverse)));
}

HWY_INLINE void store_codes(I32 codes, std::byte* out) {
  const hn::Rebind<int8_t, F32Tag> d8;
  hn::StoreU(hn::DemoteTo(d8, codes), d8, reinterpret_cast<int8_t*>(out));
}

// Codes and their sums over the first and the second half, the latter `behind` bytes behind the former; gives the
// scale.
HWY_INLINE float round_block(const F32 (&x)[kVectors], std::byte* out, int64_t behind, int32_t (&sums)[2]) {
  const I32Tag d;
  I32 most = hn::Zero(d);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) most = hn::Max(most, magnitude_bits(x[v]));
  const CodeScale scale = scale_of(most);
  I32 halves[2] = {hn::Zero(d), hn::Zero(d)};
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const I32 codes = codes_of(scale, x[v]);
    constexpr int kOfHalf = kVectors / 2;
    store_codes(codes, out + v / kOfHalf * behind + v % kOfHalf * int64_t(hn::Lanes(d)));
    halves[v / kOfHalf] = hn::Add(halves[v / kOfHalf], codes);
  }
  for (int h = 0; h < 2; ++h) sums[h] = hn::GetLane(hn::SumOfLanes(d, halves[h]));
  return scale.value;
}

// Where codes of a block begin in its group, in the order of pairs.
template <BlockType kType>
constexpr std::array<int64_t, kGroupBlocks> kPairPlaces = [] {
  std::array<int64_t, kGroupBlocks> places{};
  for (int pair = 0; pair < kPairs; ++pair)
    for (int part = 0; part < kParts; ++part)
      places[size_t(block_of_part<kType>(pair, part))] = (2 * pair * kParts + part) * 16;
  return places;
}();

template <class T, BlockType kType>
void round_row_of(const RoundCall& call, int64_t row, int place, std::byte* out) {
  constexpr int kOffset = Blocks<kType>::kOffset;
  const RoundedRow layout{call.groups, call.together};
  const T* const a = static_cast<const T*>(call.a) + row * call.b->cols;
  for (int64_t block = 0; block < layout.blocks(); ++block) {
    const int64_t lane = block % kGroupBlocks, group = block / kGroupBlocks;
    const int64_t at = (call.lane_by_lane ? lane * call.groups + group : block) * call.together + place;
    F32 x[kVectors];
    load_block(a, block * 32 - call.b->skip, call.b->cols, x);
    int32_t sums[2];
    const bool is_in_pairs = kIsInPairs<kType> && !call.lane_by_lane;
    std::byte* const codes =
        out + (is_in_pairs ? group * kGroupElements + kPairPlaces<kType>[size_t(lane)] : at * 32);
    const float scale = round_block(x, codes, is_in_pairs ? HWY_MAX_BYTES : 16, sums);
    const auto put = [&](int64_t where, auto value) { std::memcpy(out + where + at * 4, &value, 4); };
    put(layout.scales(), scale);
    if constexpr (kHasMinima<kType>)
      put(layout.terms(), scale * float(sums[0] + sums[1]));
    else if constexpr (kHasSecondHalves<kType>)
      put(layout.terms(), -kOffset * sums[0]), put(layout.second_terms(), -kOffset * sums[1]);
    else
      put(layout.terms(), -kOffset * (sums[0] + sums[1]));
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
