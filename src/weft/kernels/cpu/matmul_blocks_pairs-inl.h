// Products of bf16 activations with weights in blocks whose codes stand for floats: weights are rounded to bf16, and
// pairs of neighbours are multiplied by the machine's bf16 dot product.
#include <algorithm>

#include "weft/kernels/cpu/matmul_blocks_few-inl.h"
#include "weft/kernels/nf4.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_BLOCKS_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_BLOCKS_PAIRS_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_BLOCKS_PAIRS_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_BLOCKS_PAIRS_INL_H_
#endif

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// AVX512_BF16 is no Highway target of its own, hence assembly; used only after asking the CPU.
HWY_INLINE F32 add_pairs(F32 sum, F32 x, F32 w) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(w.raw));
  return sum;
}
// 32 floats as bf16, in order.
HWY_INLINE F32 round_to_pairs(F32 low, F32 high) {
  F32 pairs;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(pairs.raw) : "v"(high.raw), "v"(low.raw));
  return pairs;
}

constexpr int kPartElements = 64;  // what is decoded at once: two vectors of pairs
constexpr int kPairLanes = 16;
static_assert(kPairLanes == kFloatLanes);

// decode(block, part, w): the pairs of one part of a block. A part's elements may be in an order of their own;
// place(i): where element i of it stands.
template <BlockType kType>
struct PairBlocks;

template <>
struct PairBlocks<BlockType::fp8> {
  static constexpr int kSize = 128, kBytes = 132;
  static constexpr int place(int i) { return i; }
  static HWY_INLINE void decode(const std::byte* p, int part, F32 (&w)[2]) {
    const F32Tag f;
    const hn::Repartition<uint16_t, F32Tag> d16;
    const hn::RebindToSigned<decltype(d16)> i16;
    const hn::Half<hn::Repartition<hwy::float16_t, F32Tag>> half;
    const hn::Rebind<uint8_t, decltype(d16)> d8;
    // With its sign apart the code is a half that is 2^-8 of it.
    const F32 scale = hn::Set(f, read<float>(p) * 256);
    const auto* const codes = reinterpret_cast<const uint8_t*>(p + 4) + part * kPartElements;
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const auto high = hn::BitCast(i16, hn::ShiftLeft<8>(hn::PromoteTo(d16, hn::LoadU(d8, codes + 32 * i))));
      const auto bits = hn::And(hn::BitCast(d16, hn::ShiftRight<1>(high)), hn::Set(d16, 0xbfff));
      const hn::Half<decltype(d16)> half16;
      const auto value = [&](auto lanes)
                             HWY_ATTR { return hn::Mul(hn::PromoteTo(f, hn::BitCast(half, lanes)), scale); };
      w[i] = round_to_pairs(value(hn::LowerHalf(half16, bits)), value(hn::UpperHalf(half16, bits)));
    }
  }
};

template <>
struct PairBlocks<BlockType::nf4> {
  static constexpr int kSize = 64, kBytes = 36;
  // A byte has elements i and i + 16, so the even sixteens come first.
  static constexpr int place(int i) { return i / 16 % 2 * 32 + i / 32 * 16 + i % 16; }
  static HWY_INLINE void decode(const std::byte* p, int, F32 (&w)[2]) {
    const F32Tag f;
    const F32 values = hn::Mul(hn::LoadU(f, nf4::kTable.data()), hn::Set(f, read<float>(p)));
    const __m512i table = _mm512_castps_si512(round_to_pairs(values, values).raw);  // twice, so that bit 4 is free
    const __m512i codes = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 4)));
    w[0] = F32{_mm512_castsi512_ps(_mm512_permutexvar_epi16(codes, table))};
    w[1] = F32{_mm512_castsi512_ps(_mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), table))};
  }
};

// A row of a, in the order of the weights' words or lane by lane: word k is in lane k % kPairLanes.
template <BlockType kType>
void pair_row_of(const RoundCall& call, int64_t row, std::byte* out) {
  const int64_t cols = call.b->cols, skip = call.b->skip, size = call.groups * kGroupElements;
  const auto* const a = static_cast<const uint16_t*>(call.a) + row * cols;
  const int64_t steps = size / 2 / kPairLanes;
  auto* const to = reinterpret_cast<uint32_t*>(out);
  for (int64_t first = 0; first < size; first += kPartElements) {
    alignas(64) uint16_t elements[kPartElements] = {};
    const int64_t begin = std::clamp<int64_t>(skip - first, 0, kPartElements);
    const int64_t end = std::clamp<int64_t>(skip + cols - first, 0, kPartElements);
    for (int64_t i = begin; i < end; ++i) elements[PairBlocks<kType>::place(int(i))] = a[first - skip + i];
    uint32_t words[kPartElements / 2];
    std::memcpy(words, elements, sizeof words);
    if (!call.lane_by_lane) {
      std::memcpy(to + first / 2, words, sizeof words);
      continue;
    }
    for (int64_t i = 0; i < kPartElements / 2; ++i)
      to[i % kPairLanes * steps + (first / 2 + i) / kPairLanes] = words[i];
  }
}

// totals[i] = the lanes of sums[i] in their order.
template <int kCount>
HWY_INLINE void add_lanes(const F32 (&sums)[kCount], float (&totals)[round_up(kCount, 8)]) {
  const F32Tag f;
  const F32x8 f8;
  const U32x8 d8;
#pragma GCC unroll 2
  for (int first = 0; first < kCount; first += 8) {
    Scales total = hn::Zero(f8);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      hn::Vec<U32x8> lanes[8], columns[8];
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        const F32 all = first + j < kCount ? sums[std::min(first + j, kCount - 1)] : hn::Zero(f);
        lanes[j] = hn::BitCast(d8, half ? hn::UpperHalf(f8, all) : hn::LowerHalf(f8, all));
      }
      transpose_8x8(lanes, columns);
#pragma GCC unroll 8
      for (int lane = 0; lane < 8; ++lane) total = hn::Add(total, hn::BitCast(f8, columns[lane]));
    }
    hn::StoreU(total, f8, totals + first);
  }
}

constexpr int kMostFewPairRows = 8;

// Some rows of b at once: one alone would wait for each addition.
template <BlockType kType, int kRows>
void few_pair_rows_of(const BlockMatrix& b, int64_t groups, const std::byte* a, int64_t col, int cols, float* tile) {
  using Of = PairBlocks<kType>;
  constexpr int kCols = kRows <= kMostFewPairRows / 2 ? 4 : 2;
  const F32Tag f;
  const int64_t blocks = b.row_blocks(), stride = rounded_row_bytes(BlockMath::pairs, groups) / 4;
  for (int c = 0; c < cols; c += kCols) {
    const std::byte* from[kCols];
    for (int j = 0; j < kCols; ++j) from[j] = b.row(col + std::min(c + j, cols - 1));  // what is too much is not used
    F32 sums[kCols * kRows];
#pragma GCC unroll 16
    for (F32& sum : sums) sum = hn::Zero(f);
    const auto* x = reinterpret_cast<const float*>(a);
    // The next rows, which lie behind these, one after the other, and soon enough for the last of them.
    const std::byte* next = b.row(col + c) + kCols * b.row_bytes() + kNearAhead;
    for (int64_t block = 0; block < blocks; ++block, next += kCols * Of::kBytes) {
      fetch<kCols * Of::kBytes>(next);
#pragma GCC unroll 2
      for (int part = 0; part < Of::kSize / kPartElements; ++part, x += kPartElements / 2) {
        F32 w[kCols][2];
#pragma GCC unroll 4
        for (int j = 0; j < kCols; ++j) Of::decode(from[j], part, w[j]);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
          for (int v = 0; v < 2; ++v) {
            const F32 values = hn::LoadU(f, x + i * stride + v * kPairLanes);
#pragma GCC unroll 4
            for (int j = 0; j < kCols; ++j) sums[j * kRows + i] = add_pairs(sums[j * kRows + i], values, w[j][v]);
          }
        }
      }
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) from[j] += Of::kBytes;
    }
    float totals[round_up(kCols * kRows, 8)];
    add_lanes(sums, totals);
    for (int j = 0; j < std::min(kCols, cols - c); ++j)
      for (int i = 0; i < kRows; ++i) tile[i * kPanelCols + c + j] = totals[j * kRows + i];
  }
}

// kPanelCols rows of b as pairs: [lane][step][column].
template <BlockType kType>
void unpack_pairs_of(const BlockMatrix& b, int64_t groups, int64_t col, int cols, std::byte* panel) {
  using Of = PairBlocks<kType>;
  const F32Tag f;
  const U32x8 d;
  constexpr int kWords = kPartElements / 2, kParts = Of::kSize / kPartElements;
  const int64_t steps = groups * kGroupElements / 2 / kPairLanes, parts = b.row_blocks() * kParts;
  auto* const to = reinterpret_cast<uint32_t*>(panel);
  for (int c = 0; c < kPanelCols; c += 8) {
    for (int64_t part = 0; part < steps * kPairLanes / kWords; ++part) {
      alignas(64) uint32_t words[8][kWords] = {};
      for (int j = 0; j < 8 && part < parts; ++j) {
        F32 w[2];
        Of::decode(b.row(col + std::min(c + j, cols - 1)) + part / kParts * Of::kBytes, int(part % kParts), w);
        for (int v = 0; v < 2; ++v) hn::Store(w[v], f, reinterpret_cast<float*>(words[j]) + v * kPairLanes);
      }
      for (int64_t k = 0; k < kWords; k += 8) {
        hn::Vec<U32x8> lines[8], columns[8];
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) lines[j] = hn::LoadU(d, words[j] + k);
        transpose_8x8(lines, columns);
#pragma GCC unroll 8
        for (int64_t i = 0; i < 8; ++i) {
          const int64_t word = part * kWords + k + i;
          hn::StoreU(columns[i], d, to + (word % kPairLanes * steps + word / kPairLanes) * kPanelCols + c);
        }
      }
    }
  }
}

// What many_word_rows_of multiplies: a pair of a with one of b.
struct PairWord {
  static constexpr BlockMath kMath = BlockMath::pairs;
  static constexpr int kElements = 2;
  static HWY_INLINE F32 add(F32 sum, F32 x, F32 w) { return add_pairs(sum, x, w); }
};

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif  // include guard
