// Products with weights of 8 bits that have one scale to a row: activations are rounded with one scale to a row too,
// so that sums are of integers, which are exact in any order.
#include <algorithm>

#include "weft/kernels/cpu/matmul_blocks_round-inl.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_BLOCKS_INT8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_BLOCKS_INT8_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_BLOCKS_INT8_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_BLOCKS_INT8_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

constexpr int64_t kInt8Block = 128, kInt8Bytes = 132;
constexpr int kInt8Offset = 128;  // codes are stored as signed

// Codes, then a scale, then minus the offset times their sum.
template <class T>
void round_int8_row_of(const RoundCall& call, int64_t row, std::byte* out) {
  const I32Tag d;
  const T* const a = static_cast<const T*>(call.a) + row * call.b->cols;
  const int64_t size = call.groups * kGroupElements;
  I32 most = hn::Zero(d);
  for (int64_t first = 0; first < size; first += 32) {
    F32 x[kVectors];
    load_block(a, first - call.b->skip, call.b->cols, x);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) most = hn::Max(most, magnitude_bits(x[v]));
  }
  const CodeScale scale = scale_of(most);
  I32 sum = hn::Zero(d);
  for (int64_t first = 0; first < size; first += 32) {
    F32 x[kVectors];
    load_block(a, first - call.b->skip, call.b->cols, x);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const I32 codes = codes_of(scale.inverse, x[v]);
      store_codes(codes, out + first + v * int64_t(hn::Lanes(d)));
      sum = hn::Add(sum, codes);
    }
  }
  const float by = scale.value;
  const int32_t term = -kInt8Offset * hn::GetLane(hn::SumOfLanes(d, sum));
  std::memcpy(out + size, &by, 4);
  std::memcpy(out + size + 4, &term, 4);
}

HWY_INLINE float int8_result(int32_t sum, float a_scale, float b_scale) { return float(sum) * (a_scale * b_scale); }

// One row of b after the other, so that memory is read in one stream.
template <class Dot, int kRows>
void few_int8_rows_of(const BlockMatrix& b, int64_t groups, const std::byte* a, int64_t col, int cols, float* tile) {
  const I32Tag d;
  const hn::Repartition<uint8_t, I32Tag> d8;
  const auto bytes = int64_t(hn::Lanes(d8));
  const int64_t size = groups * kGroupElements, stride = rounded_row_bytes(BlockMath::int8, groups),
                blocks = b.row_blocks();
  const auto* from = b.row(col);
  for (int c = 0; c < cols; ++c) {
    I32 sums[kRows][2];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = hn::Zero(d);
    const float scale = read<float>(from);
    const std::byte* x = a;
#pragma GCC unroll 1
    for (int64_t block = 0; block < blocks; ++block, from += kInt8Bytes, x += kInt8Block) {
#pragma GCC unroll 4
      for (int64_t at = 0; at < kInt8Block; at += bytes) {
        const auto codes = wide_codes<Dot>(hn::LoadU(d8, reinterpret_cast<const uint8_t*>(from + 4 + at)));
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) {
          I32& sum = sums[i][at / bytes % 2];
          sum = Dot::template add<true>(d, sum, codes,
                                        hn::LoadU(d8, reinterpret_cast<const uint8_t*>(x + i * stride + at)));
        }
      }
    }
    for (int i = 0; i < kRows; ++i) {
      const std::byte* const behind = a + i * stride + size;
      const auto sum = uint32_t(hn::GetLane(hn::SumOfLanes(d, hn::Add(sums[i][0], sums[i][1])))) +
                       (Dot::kWideIsSigned ? 0 : read<uint32_t>(behind + 4));
      tile[i * kPanelCols + c] = int8_result(int32_t(sum), read<float>(behind), scale);
    }
  }
}

// kPanelCols rows of b: codes as [word][column][4], then a scale of each column.
template <bool kIsSigned>
void unpack_int8(const BlockMatrix& b, int64_t groups, int64_t col, int cols, std::byte* panel) {
  const U32Tag d;
  const int64_t size = groups * kGroupElements, filled = b.row_blocks() * kInt8Block, row_bytes = b.row_bytes();
  const auto* const from = static_cast<const std::byte*>(b.blocks.raw());
  auto* const out = reinterpret_cast<uint32_t*>(panel);
  const auto offset = hn::Set(d, kIsSigned ? 0 : kInt8Offset * 0x01010101u);
  for (int c = 0; c < kPanelCols; c += kWordRows) {
    WordRows rows;
    for (int j = 0; j < kWordRows; ++j) {
      rows[j] = from + (col + std::min(c + j, cols - 1)) * row_bytes;  // what is too much is not used
      std::memcpy(panel + size * kPanelCols + (c + j) * 4, rows[j], 4);
    }
    for (int64_t at = 0; at < size; at += 16) {
      Words words[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      if (at < filled) load_words(rows, at / kInt8Block * kInt8Bytes + 4 + at % kInt8Block, words);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) hn::StoreU(hn::Xor(words[i], offset), d, out + (at / 4 + i) * kPanelCols + c);
    }
  }
}

constexpr int kInt8TileRows = HWY_MAX_BYTES >= 64 ? 12 : 4;

template <class Dot, int kRows>
void many_int8_rows_of(int64_t groups, const std::byte* panel, const std::byte* a, float* tile,
                       const LinesAhead& ahead) {
  const I32Tag d;
  const F32Tag f;
  const hn::Repartition<uint8_t, I32Tag> d8;
  const auto lanes = int64_t(hn::Lanes(d));
  const int64_t size = groups * kGroupElements, stride = rounded_row_bytes(BlockMath::int8, groups);
  Fetcher fetcher(ahead, size / 4);
  for (int64_t c = 0; c < kPanelCols; c += 2 * lanes) {
    const std::byte* b = panel + c * 4;
    I32 sums[kRows][2];
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i)
      sums[i][0] = sums[i][1] =
          Dot::kWideIsSigned ? hn::Zero(d) : hn::Set(d, read<int32_t>(a + i * stride + size + 4));
#pragma GCC unroll 1
    for (int64_t k = 0; k < size; k += 4, b += kPanelCols * 4) {
      fetcher.step();
      const auto b0 = hn::LoadU(d8, reinterpret_cast<const uint8_t*>(b));
      const auto b1 = hn::LoadU(d8, reinterpret_cast<const uint8_t*>(b + lanes * 4));
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i) {
        const auto x = hn::BitCast(d8, hn::Set(d, read<int32_t>(a + i * stride + k)));
        sums[i][0] = Dot::template add<true>(d, sums[i][0], b0, x);
        sums[i][1] = Dot::template add<true>(d, sums[i][1], b1, x);
      }
    }
    const auto* const scales = reinterpret_cast<const float*>(panel + size * kPanelCols) + c;
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const F32 a_scale = hn::Set(f, read<float>(a + i * stride + size));
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        const F32 by = hn::Mul(a_scale, hn::LoadU(f, scales + v * lanes));
        hn::StoreU(hn::Mul(hn::ConvertTo(f, sums[i][v]), by), f, tile + i * kPanelCols + c + v * lanes);
      }
    }
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
