// Rounding of a row of activations to codes of 8 bits, for most types with a scale to each block of 32.
#include <algorithm>
#include <bit>
#include <limits>

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

HWY_INLINE I32 codes_of(float inverse, F32 x) {
  if (inverse == 0) return hn::Zero(I32Tag());
  return hn::NearestInt(hn::Mul(x, hn::Set(F32Tag(), inverse)));
}

HWY_INLINE void store_codes(I32 codes, std::byte* out) {
  const hn::Rebind<int8_t, F32Tag> d8;
  hn::StoreU(hn::DemoteTo(d8, codes), d8, reinterpret_cast<int8_t*>(out));
}

// Of each of a group's eight blocks what op makes of the lanes of its vector.
template <class Op>
HWY_INLINE Ints fold_lanes(const I32 (&blocks)[kGroupBlocks], Op op) {
  Ints lanes[kGroupBlocks], columns[kGroupBlocks];
#pragma GCC unroll 8
  for (int i = 0; i < kGroupBlocks; ++i) {
#if HWY_MAX_BYTES >= 64
    lanes[i] = op(hn::LowerHalf(blocks[i]), hn::UpperHalf(I32x8(), blocks[i]));
#else
    lanes[i] = blocks[i];
#endif
  }
  transpose_8x8(lanes, columns);
  const Ints low = op(op(columns[0], columns[1]), op(columns[2], columns[3]));
  return op(low, op(op(columns[4], columns[5]), op(columns[6], columns[7])));
}

// CodeScale of each block of a group.
struct GroupScales {
  alignas(32) float values[kGroupBlocks], inverses[kGroupBlocks];

  HWY_INLINE GroupScales(const F32 (&x)[kGroupBlocks][kVectors], float most) {
    const F32x8 f;
    I32 magnitudes[kGroupBlocks];
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i) {
      magnitudes[i] = magnitude_bits(x[i][0]);
#pragma GCC unroll 4
      for (int v = 1; v < kVectors; ++v) magnitudes[i] = hn::Max(magnitudes[i], magnitude_bits(x[i][v]));
    }
    const Scales largest =
        hn::BitCast(f, fold_lanes(magnitudes, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); }));
    const auto is_finite = hn::Le(largest, hn::Set(f, std::numeric_limits<float>::max()));
    const auto counts = hn::And(is_finite, hn::Ge(largest, hn::Set(f, CodeScale::kLeast)));
    const Scales value = hn::IfThenElseZero(counts, hn::Div(largest, hn::Set(f, most)));
    hn::Store(hn::IfThenElse(is_finite, value, hn::Set(f, std::numeric_limits<float>::quiet_NaN())), f, values);
    hn::Store(hn::IfThenElseZero(counts, hn::Div(hn::Set(f, most), largest)), f, inverses);
  }
};

// Where codes of a block begin in its group, in the order of pairs.
template <BlockType kType>
constexpr std::array<int64_t, kGroupBlocks> kPairPlaces = [] {
  std::array<int64_t, kGroupBlocks> places{};
  for (int pair = 0; pair < kPairs; ++pair)
    for (int part = 0; part < kParts; ++part)
      places[size_t(block_of_part<kType>(pair, part))] = (2 * pair * kParts + part) * 16;
  return places;
}();

// The scales of a group's blocks and their terms, to where at(offset, block) says. halves: sums of codes, which the
// lanes of a block's first and second half have.
template <BlockType kType, class At>
HWY_INLINE void put_numbers(const float* scales, const I32 (&halves)[2][kGroupBlocks], const RoundedRow& layout,
                            At at) {
  constexpr int kOffset = Blocks<kType>::kOffset;
  const auto add = [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); };
  const auto put = [&](int64_t offset, const auto* numbers) HWY_ATTR {
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i) std::memcpy(at(offset, i), numbers + i, 4);
  };
  const auto put_term = [&](int64_t offset, Ints sums) HWY_ATTR {
    alignas(32) int32_t terms[kGroupBlocks];
    hn::Store(hn::Mul(sums, hn::Set(I32x8(), -kOffset)), I32x8(), terms);
    put(offset, terms);
  };
  put(layout.scales(), scales);
  if constexpr (kHasSecondHalves<kType>) {
    put_term(layout.terms(), fold_lanes(halves[0], add));
    put_term(layout.second_terms(), fold_lanes(halves[1], add));
    return;
  }
  I32 both[kGroupBlocks];
#pragma GCC unroll 8
  for (int i = 0; i < kGroupBlocks; ++i) both[i] = hn::Add(halves[0][i], halves[1][i]);
  const Ints sums = fold_lanes(both, add);
  if constexpr (kHasMinima<kType>) {
    const F32x8 f;
    alignas(32) float terms[kGroupBlocks];
    hn::Store(hn::Mul(hn::Load(f, scales), hn::ConvertTo(f, sums)), f, terms);
    put(layout.terms(), terms);
  } else {
    put_term(layout.terms(), sums);
  }
}

// A group at a time: what is asked of the lanes of one block takes as long for eight.
template <class T, BlockType kType>
void round_row_of(const RoundCall& call, int64_t row, int place, std::byte* out) {
  constexpr int kOfHalf = kVectors / 2;
  const auto lanes = int64_t(hn::Lanes(F32Tag()));
  const RoundedRow layout{call.groups, call.together};
  const T* const a = static_cast<const T*>(call.a) + row * call.b->cols;
  const bool is_in_pairs = kIsInPairs<kType> && !call.lane_by_lane;
  const int64_t behind = is_in_pairs ? HWY_MAX_BYTES : 16;  // of the second half behind the first
  for (int64_t group = 0; group < call.groups; ++group) {
    F32 x[kGroupBlocks][kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i)
      load_block(a, (group * kGroupBlocks + i) * 32 - call.b->skip, call.b->cols, x[i]);
    const GroupScales scales(x, 127);
    const auto place_of = [&](int64_t i) {
      return (call.lane_by_lane ? i * call.groups + group : group * kGroupBlocks + i) * call.together + place;
    };
    I32 halves[2][kGroupBlocks];
#pragma GCC unroll 8
    for (int i = 0; i < kGroupBlocks; ++i) {
      std::byte* const to =
          out + (is_in_pairs ? group * kGroupElements + kPairPlaces<kType>[size_t(i)] : place_of(i) * 32);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const I32 codes = codes_of(scales.inverses[i], x[i][v]);
        store_codes(codes, to + v / kOfHalf * behind + v % kOfHalf * lanes);
        I32& sum = halves[v / kOfHalf][i];
        sum = v % kOfHalf == 0 ? codes : hn::Add(sum, codes);
      }
    }
    put_numbers<kType>(scales.values, halves, layout,
                       [&](int64_t offset, int i) { return out + offset + place_of(i) * 4; });
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
