// Products with weights in blocks whose codes stand for floats, FP8 and NF4, as floats. Activations stay as they are.
#include <algorithm>

#include "weft/kernels/cpu/matmul_blocks_round-inl.h"
#include "weft/kernels/nf4.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_BLOCKS_FLOATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_BLOCKS_FLOATS_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_BLOCKS_FLOATS_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_BLOCKS_FLOATS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

constexpr int kFloatParts = int(kFloatLanes) / (HWY_MAX_BYTES / 4);  // vectors of the lanes' sums

template <BlockType kType>
struct FloatBlocks;

template <>
struct FloatBlocks<BlockType::fp8> {
  static constexpr int kSize = 128, kBytes = 132;
  // Calls visit(first element, vector of values) for one vector after the other.
  template <class Visit>
  static HWY_INLINE void each(const std::byte* p, Visit&& visit) {
    const F32Tag f;
    const hn::Rebind<uint8_t, F32Tag> d8;
    const hn::Rebind<uint16_t, F32Tag> d16;
    const hn::Rebind<int16_t, F32Tag> i16;
    const hn::Rebind<hwy::float16_t, F32Tag> half;
    // With its sign apart the code is a half that is 2^-8 of it.
    const F32 scale = hn::Set(f, read<float>(p) * 256);
    const auto* const codes = reinterpret_cast<const uint8_t*>(p + 4);
#pragma GCC unroll 16
    for (int i = 0; i < kSize; i += int(hn::Lanes(f))) {
      const auto high = hn::BitCast(i16, hn::ShiftLeft<8>(hn::PromoteTo(d16, hn::LoadU(d8, codes + i))));
      const auto bits = hn::And(hn::BitCast(d16, hn::ShiftRight<1>(high)), hn::Set(d16, 0xbfff));
      visit(i, hn::Mul(hn::PromoteTo(f, hn::BitCast(half, bits)), scale));
    }
  }
};

template <>
struct FloatBlocks<BlockType::nf4> {
  static constexpr int kSize = 64, kBytes = 36;
  template <class Visit>
  static HWY_INLINE void each(const std::byte* p, Visit&& visit) {
    const F32Tag f;
    const I32Tag d;
    const hn::Rebind<uint8_t, F32Tag> d8;
    const F32 scale = hn::Set(f, read<float>(p));
    const auto* const codes = reinterpret_cast<const uint8_t*>(p + 4);
    constexpr int kLanes = HWY_MAX_BYTES / 4;
#pragma GCC unroll 2
    for (int part = 0; part < kSize; part += 32) {
#pragma GCC unroll 2
      for (int i = 0; i < 16; i += kLanes) {
        const auto both = hn::PromoteTo(d, hn::LoadU(d8, codes + part / 2 + i));
        visit(part + i, hn::Mul(value_of(hn::And(both, hn::Set(d, 15))), scale));
        visit(part + 16 + i, hn::Mul(value_of(hn::ShiftRight<4>(both)), scale));
      }
    }
  }

 private:
  static HWY_INLINE F32 value_of(I32 code) {
    const F32Tag f;
    const F32 low = hn::LoadU(f, nf4::kTable.data());
    if constexpr (HWY_MAX_BYTES >= 64) return hn::TableLookupLanes(low, hn::IndicesFromVec(f, code));
    const I32Tag d;
    const F32 high = hn::LoadU(f, nf4::kTable.data() + 8);
    const auto index = hn::IndicesFromVec(f, hn::And(code, hn::Set(d, 7)));
    const auto is_high = hn::RebindMask(f, hn::Gt(code, hn::Set(d, 7)));
    return hn::IfThenElse(is_high, hn::TableLookupLanes(high, index), hn::TableLookupLanes(low, index));
  }
};

// A row of a as floats, in its order or lane by lane: element k is in lane k % kFloatLanes.
template <class T>
void widen_row_of(const RoundCall& call, int64_t row, std::byte* out) {
  const F32Tag f;
  const auto lanes = int64_t(hn::Lanes(f));
  const T* const a = static_cast<const T*>(call.a) + row * call.b->cols;
  auto* const to = reinterpret_cast<float*>(out);
  const int64_t steps = call.groups * kGroupElements / kFloatLanes;
  for (int64_t first = 0; first < call.groups * kGroupElements; first += 32) {
    F32 x[kVectors];
    load_block(a, first - call.b->skip, call.b->cols, x);
    alignas(64) float values[32];
    float* const at = call.lane_by_lane ? values : to + first;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::StoreU(x[v], f, at + v * lanes);
    if (call.lane_by_lane)
      for (int64_t i = 0; i < 32; ++i) to[i % kFloatLanes * steps + (first + i) / kFloatLanes] = values[i];
  }
}

// One row of b after the other, so that memory is read in one stream.
template <BlockType kType, int kRows>
void few_float_rows_of(const BlockMatrix& b, int64_t groups, const std::byte* a, int64_t col, int cols, float* tile) {
  using Of = FloatBlocks<kType>;
  const F32Tag f;
  const auto lanes = int64_t(hn::Lanes(f));
  const int64_t blocks = b.row_blocks();
  const int64_t stride = rounded_row_bytes(BlockMath::floats, groups) / 4;
  const auto* from = b.row(col);
  for (int c = 0; c < cols; ++c) {
    F32 sums[kRows][kFloatParts];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 2
      for (int part = 0; part < kFloatParts; ++part) sums[i][part] = hn::Zero(f);
    const auto* x = reinterpret_cast<const float*>(a);
#pragma GCC unroll 1
    for (int64_t block = 0; block < blocks; ++block, from += Of::kBytes, x += Of::kSize)
      Of::each(
          from, [&](int first, F32 w) HWY_ATTR __attribute__((always_inline)) {
            const int part = first / int(lanes) % kFloatParts;
#pragma GCC unroll 4
            for (int i = 0; i < kRows; ++i)
              sums[i][part] = hn::MulAdd(hn::LoadU(f, x + i * stride + first), w, sums[i][part]);
          });
    for (int i = 0; i < kRows; ++i) {
      alignas(64) float all[kFloatLanes];
      for (int part = 0; part < kFloatParts; ++part) hn::Store(sums[i][part], f, all + part * lanes);
      float total = 0;
      for (const float lane : all) total += lane;
      tile[i * kPanelCols + c] = total;
    }
  }
}

// kPanelCols rows of b as floats: [lane][step][column].
template <BlockType kType>
void unpack_floats_of(const BlockMatrix& b, int64_t groups, int64_t col, int cols, std::byte* panel) {
  using Of = FloatBlocks<kType>;
  const F32Tag f;
  const U32x8 d;
  const int64_t blocks = b.row_blocks(), steps = groups * kGroupElements / kFloatLanes;
  const auto* const from = static_cast<const std::byte*>(b.blocks.raw());
  auto* const to = reinterpret_cast<uint32_t*>(panel);
  const int64_t all_blocks = groups * kGroupElements / Of::kSize;
  for (int c = 0; c < kPanelCols; c += 8) {
    for (int64_t block = 0; block < all_blocks; ++block) {
      alignas(64) float values[8][Of::kSize];
      for (int j = 0; j < 8; ++j) {
        const int64_t row = col + std::min(c + j, cols - 1);  // what is too much is not used
        if (block < blocks)
          Of::each(from + row * b.row_bytes() + block * Of::kBytes,
                   [&](int first, F32 w) HWY_ATTR { hn::Store(w, f, values[j] + first); });
        else
          std::fill_n(values[j], Of::kSize, 0.0f);
      }
      for (int k = 0; k < Of::kSize; k += 8) {
        hn::Vec<U32x8> lines[8], columns[8];
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) lines[j] = hn::LoadU(d, reinterpret_cast<const uint32_t*>(values[j] + k));
        transpose_8x8(lines, columns);
        const int64_t first = block * Of::kSize + k;
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
          const int64_t lane = (first + i) % kFloatLanes, step = (first + i) / kFloatLanes;
          hn::StoreU(columns[i], d, to + (lane * steps + step) * kPanelCols + c);
        }
      }
    }
  }
}

constexpr int kFloatTileRows = HWY_MAX_BYTES >= 64 ? 12 : 4;

// What many_word_rows_of multiplies: a float of a with one of b.
struct FloatWord {
  static constexpr BlockMath kMath = BlockMath::floats;
  static constexpr int kElements = 1;
  static HWY_INLINE F32 add(F32 sum, F32 x, F32 w) { return hn::MulAdd(x, w, sum); }
};

// Words of 4 bytes, lane by lane on both sides.
template <class Word, int kRows>
void many_word_rows_of(int64_t groups, const std::byte* panel, const std::byte* a, float* tile,
                       const LinesAhead& ahead) {
  const F32Tag f;
  const auto lanes = int64_t(hn::Lanes(f));
  const int64_t steps = groups * kGroupElements / Word::kElements / kFloatLanes;
  const int64_t stride = rounded_row_bytes(Word::kMath, groups) / 4;
  Fetcher fetcher(ahead, steps * kFloatLanes);
  std::fill_n(tile, kRows * kPanelCols, 0.0f);
  for (int64_t c = 0; c < kPanelCols; c += 2 * lanes) {
    for (int64_t lane = 0; lane < kFloatLanes; ++lane) {
      const auto* b = reinterpret_cast<const float*>(panel) + lane * steps * kPanelCols + c;
      const auto* x = reinterpret_cast<const float*>(a) + lane * steps;
      F32 sums[kRows][2];
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = hn::Zero(f);
#pragma GCC unroll 1
      for (int64_t step = 0; step < steps; ++step, b += kPanelCols, ++x) {
        fetcher.step();
        const F32 b0 = hn::LoadU(f, b), b1 = hn::LoadU(f, b + lanes);
#pragma GCC unroll 12
        for (int i = 0; i < kRows; ++i) {
          const F32 value = hn::Set(f, x[i * stride]);
          sums[i][0] = Word::add(sums[i][0], value, b0);
          sums[i][1] = Word::add(sums[i][1], value, b1);
        }
      }
      add_sums(sums, tile + c);
    }
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
