// Products of few rows with weights in blocks: the lanes of a column are those of a vector.
#include "weft/kernels/cpu/matmul_blocks_types-inl.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_BLOCKS_FEW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_BLOCKS_FEW_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_BLOCKS_FEW_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_BLOCKS_FEW_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// Of the products of each of eight blocks, four neighbours in a lane: the sums of the lower half of its lanes, and of
// the upper.
HWY_INLINE void sum_quads(const I32 (&x)[kGroupBlocks / kTogether], Ints& lower, Ints& upper) {
  const I32Tag d;
  const hn::Repartition<int64_t, I32Tag> d64;
  I32 quads[2 / kTogether];
#pragma GCC unroll 2
  for (int h = 0; h < 2 / kTogether; ++h) {
    const I32* const y = x + 4 * h;
    const I32 a = hn::Add(hn::InterleaveLower(d, y[0], y[1]), hn::InterleaveUpper(d, y[0], y[1]));
    const I32 b = hn::Add(hn::InterleaveLower(d, y[2], y[3]), hn::InterleaveUpper(d, y[2], y[3]));
    const auto a64 = hn::BitCast(d64, a), b64 = hn::BitCast(d64, b);
    quads[h] = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, a64, b64)),
                       hn::BitCast(d, hn::InterleaveUpper(d64, a64, b64)));
  }
#if HWY_MAX_BYTES >= 64
  // Blocks 0, 2, 4, 6 in the first 8 lanes, lower halves first; then the others.
  alignas(64) static constexpr int32_t kLower[16] = {0, 8, 1, 9, 2, 10, 3, 11},
                                       kUpper[16] = {4, 12, 5, 13, 6, 14, 7, 15};
  lower = hn::LowerHalf(hn::TableLookupLanes(quads[0], hn::SetTableIndices(d, kLower)));
  upper = hn::LowerHalf(hn::TableLookupLanes(quads[0], hn::SetTableIndices(d, kUpper)));
#else
  lower = hn::ConcatLowerLower(d, quads[1], quads[0]);
  upper = hn::ConcatUpperUpper(d, quads[1], quads[0]);
#endif
}

// Of the products of pairs, which parts they are of: the sum of each block.
template <BlockType kType>
HWY_INLINE Ints sum_parts(const I32 (&x)[kPairs]) {
  const I32Tag d;
  const hn::Repartition<int64_t, I32Tag> d64;
  const auto add_neighbours = [&](I32 a, I32 b) {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  // Four sums to a part: of pairs 0 and 1 twice, or of all four.
  I32 sums = add_neighbours(x[0], x[1]);
  if constexpr (kPairs == 2) {
    sums = hn::Add(sums, hn::Shuffle1032(sums));
  } else {
    const auto lo = hn::BitCast(d64, sums), hi = hn::BitCast(d64, add_neighbours(x[2], x[3]));
    sums =
        hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, lo, hi)), hn::BitCast(d, hn::InterleaveUpper(d64, lo, hi)));
  }
  alignas(64) static constexpr auto kPlaces = [] {
    std::array<int32_t, kParts * 4> places{};
    for (int pair = 0; pair < kPairs; ++pair)
      for (int part = 0; part < kParts; ++part)
        places[size_t(block_of_part<kType>(pair, part))] = int32_t(4 * part + pair);
    return places;
  }();
  const I32 ordered = hn::TableLookupLanes(sums, hn::SetTableIndices(d, kPlaces.data()));
#if HWY_MAX_BYTES >= 64
  return hn::LowerHalf(ordered);
#else
  return ordered;
#endif
}

HWY_INLINE Ints load_ints(const std::byte* p) { return hn::LoadU(I32x8(), reinterpret_cast<const int32_t*>(p)); }
HWY_INLINE Scales load_floats(const std::byte* p) { return hn::LoadU(F32x8(), reinterpret_cast<const float*>(p)); }

template <class Dot, BlockType kType>
HWY_INLINE Scales add_group(const Group& g, const RoundedRow& layout, const std::byte* a, int64_t group, Scales sum) {
  const I32Tag d;
  const F32x8 f;
  const auto a_codes = [&](int i) HWY_ATTR { return load_codes(a + (group * kGroupBlocks + i * kTogether) * 32); };
  const auto add = [&](I32 to, int i) HWY_ATTR {
    const Codes codes = kIsWide<kType> ? wide_codes<Dot>(g.codes[i]) : g.codes[i];
    return Dot::template add<kIsWide<kType>>(d, to, codes, a_codes(i));
  };
  const int64_t at = group * kGroupBlocks * 4;
  const Scales scales = load_floats(a + layout.scales() + at);
  const std::byte* const terms = a + layout.terms() + at;
  const auto plus = [&](Ints x, Scales by) { return hn::MulAdd(hn::ConvertTo(f, x), hn::Mul(scales, by), sum); };
  if constexpr (kIsInPairs<kType>) {
    I32 pairs[kPairs];
#pragma GCC unroll 4
    for (int i = 0; i < 2 * kPairs; i += 2) {
      if constexpr (Dot::kSumsShorts)
        pairs[i / 2] =
            Dot::widened(hn::Add(Dot::shorts(g.codes[i], a_codes(i)), Dot::shorts(g.codes[i + 1], a_codes(i + 1))));
      else
        pairs[i / 2] = add(add(hn::Zero(d), i), i + 1);
    }
    const Ints dots = sum_parts<kType>(pairs);
    if constexpr (!kHasMinima<kType>) return plus(hn::Add(dots, load_ints(terms)), g.scales);
    sum = plus(dots, g.scales);
    return hn::NegMulAdd(load_floats(terms), g.second, sum);
  }
  I32 dots[kGroupBlocks / kTogether];
#pragma GCC unroll 8
  for (int i = 0; i < kGroupBlocks / kTogether; ++i) dots[i] = add(hn::Zero(d), i);
  Ints lower, upper;
  sum_quads(dots, lower, upper);
  if constexpr (kHasSecondHalves<kType>) {
    sum = plus(hn::Add(lower, load_ints(terms)), g.scales);
    return plus(hn::Add(upper, load_ints(a + layout.second_terms() + at)), g.second);
  } else {
    const Ints both = hn::Add(lower, upper);
    return plus(kIsWide<kType> && Dot::kWideIsSigned ? both : hn::Add(both, load_ints(terms)), g.scales);
  }
}

template <class Dot, BlockType kType, int kRows>
void few_rows_of(const BlockMatrix& b, int64_t groups, const std::byte* a, int64_t col, int cols, float* tile) {
  const F32x8 f;
  const U32x8 d;
  const RoundedRow layout{groups};
  for (int c = 0; c < cols; c += 8) {
    hn::Vec<U32x8> lanes[kRows][8];  // of each column
    for (int j = 0; j < 8; ++j) {
      Scales sums[kRows];
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sums[i] = hn::Zero(f);
      if (c + j < cols) {
        RowOfB<kType> row;
        row.set(b, col + c + j);
        for (int64_t g = 0; g < groups; ++g) {
          Group group;
          const std::byte* const from = row.group(g);
          // Rows lie one behind the other, so that what is far enough ahead is read soon, whichever row it belongs
          // to. The processor's own fetching ends where pages do.
          fetch<RowOfB<kType>::kGroupBytes>(from + kNearAhead);
          Blocks<kType>::unpack(from, group);
#pragma GCC unroll 4
          for (int i = 0; i < kRows; ++i)
            sums[i] = add_group<Dot, kType>(group, layout, a + i * layout.bytes(), g, sums[i]);
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) lanes[i][j] = hn::BitCast(d, sums[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      hn::Vec<U32x8> columns[8];
      transpose_8x8(lanes[i], columns);
      Scales total = hn::Zero(f);
#pragma GCC unroll 8
      for (int lane = 0; lane < 8; ++lane) total = hn::Add(total, hn::BitCast(f, columns[lane]));
      hn::StoreU(total, f, tile + i * kPanelCols + c);
    }
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
