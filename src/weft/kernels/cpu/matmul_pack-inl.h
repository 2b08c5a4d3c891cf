// Packing of the operands of the matrix product; see matmul_kernels.h for the layouts.
#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "weft/kernels/cpu/matmul_kernels.h"
#include "weft/kernels/cpu/simd_math-inl.h"

#if defined(WEFT_KERNELS_CPU_MATMUL_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_MATMUL_PACK_INL_H_
#undef WEFT_KERNELS_CPU_MATMUL_PACK_INL_H_
#else
#define WEFT_KERNELS_CPU_MATMUL_PACK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// out[c] = (even[c], odd[c]); without odd the partners are zero.
HWY_INLINE void interleave(uint32_t* out, const uint16_t* even, const uint16_t* odd, int64_t cols) {
  const hn::ScalableTag<uint32_t> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) {
    auto pairs = hn::PromoteTo(d, hn::LoadU(d16, even + c));
    if (odd) pairs = hn::Or(pairs, hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(d16, odd + c))));
    hn::StoreU(pairs, d, out + c);
  }
  for (; c < cols; ++c) out[c] = uint32_t(even[c]) | (odd ? uint32_t(odd[c]) << 16 : 0);
}

template <class T>
HWY_INLINE void widen_as(float* out, const uint16_t* in, int64_t count) {
  const F32Tag d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto* from = reinterpret_cast<const T*>(in);
  int64_t c = 0;
  for (; c + lanes <= count; c += lanes) hn::StoreU(load(d, from + c), d, out + c);
  if (c < count) store_first(load_first(d, from + c, size_t(count - c)), d, out + c, size_t(count - c));
}

HWY_INLINE void widen(DotKind kind, float* out, const uint16_t* in, int64_t count) {
  kind == DotKind::f16_as_f32 ? widen_as<Float16>(out, in, count) : widen_as<BFloat16>(out, in, count);
}

// Brings `bytes` from p on closer. Inlined, since GCC removes calls of functions that only prefetch.
HWY_INLINE void fetch(const std::byte* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
}

constexpr int64_t kLinesAhead = 4;  // of more rows at once than the hardware follows
constexpr int64_t kRowsAhead = 16;  // of short rows far apart, which the hardware does not foresee

// out[j][i] = in[i][j] for 4 x 4 words.
HWY_INLINE void transpose_4x4(const uint32_t* in, int64_t in_stride, uint32_t* out, int64_t out_stride) {
  const hn::Full128<uint32_t> d;
  const hn::Full128<uint64_t> d64;
  const auto r0 = hn::LoadU(d, in), r1 = hn::LoadU(d, in + in_stride);
  const auto r2 = hn::LoadU(d, in + 2 * in_stride), r3 = hn::LoadU(d, in + 3 * in_stride);
  const auto lo01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto hi01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto lo23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto hi23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, lo01, lo23)), d, out);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, lo01, lo23)), d, out + out_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, hi01, hi23)), d, out + 2 * out_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, hi01, hi23)), d, out + 3 * out_stride);
}

// ---- a ----

constexpr int64_t kWords = 16;  // of a row, packed at a time

// Words [word, word + kWords) of a row of a block, as f32 or as pairs; those past its end are zero.
HWY_INLINE void copy_words(DotKind kind, const std::byte* row, int64_t num_k, int64_t word, uint32_t* out) {
  const int64_t per_word = kind == DotKind::bf16_pairs || kind == DotKind::bf16_tiles ? 2 : 1,
                size = kind == DotKind::f32 ? 4 : 2;
  const int64_t k = word * per_word, have = std::clamp<int64_t>(num_k - k, 0, kWords * per_word);
  const std::byte* const from = row + k * size;
  if (have < kWords * per_word) std::memset(out, 0, kWords * 4);
  if (kind == DotKind::bf16_as_f32 || kind == DotKind::f16_as_f32)
    widen(kind, reinterpret_cast<float*>(out), reinterpret_cast<const uint16_t*>(from), have);
  else if (have == kWords * per_word)
    std::memcpy(out, from, kWords * 4);
  else
    std::memcpy(out, from, size_t(have * size));
}

// Rows of a become columns of its tiles, 16 words of four rows at a time. The last rows first: what they write too
// much is the beginning of the next word's.
HWY_INLINE void pack_tile_of_rows(DotKind kind, const std::byte* a, int64_t row_bytes, int64_t rows, int64_t num_k,
                                  int64_t words, uint32_t* out) {
  for (int64_t word = 0; word < words; word += kWords) {
    const int64_t count = std::min(kWords, words - word);
    for (int64_t row = (rows - 1) / 4 * 4; row >= 0; row -= 4) {
      alignas(64) uint32_t four[4][kWords];
      for (int64_t i = 0; i < 4; ++i)
        if (row + i < rows) copy_words(kind, a + (row + i) * row_bytes, num_k, word, four[i]);
      uint32_t* const to = out + word * rows + row;
      int64_t w = 0;
      for (; w + 4 <= count; w += 4) transpose_4x4(four[0] + w, kWords, to + w * rows, rows);
      for (; w < count; ++w) {
        for (int64_t i = 0; i < std::min<int64_t>(4, rows - row); ++i) to[w * rows + i] = four[i][w];
      }
    }
  }
}

HWY_INLINE int64_t words_of(DotKind kind, int64_t num_k) {
  return packed_words(kind, kind == DotKind::f32 || kind == DotKind::f16_as_f32 ? num_k : (num_k + 1) / 2);
}

// For tile registers rows stay rows.
HWY_INLINE void pack_rows_for_tiles(const std::byte* a, int64_t row_bytes, int64_t rows, int64_t num_k, int64_t words,
                                    uint32_t* out) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t word = 0; word < words; word += kWords)
      copy_words(DotKind::bf16_tiles, a + row * row_bytes, num_k, word, out + word * rows + row * kWords);
  }
}

HWY_INLINE void pack_a_rows(DotKind kind, const BlockOfA& block, uint32_t* packed, int tile_rows) {
  const int64_t size = kind == DotKind::f32 ? 4 : 2, words = words_of(kind, block.num_k);
  const auto* a = static_cast<const std::byte*>(block.a) + (block.row * block.ld + block.k) * size;
  int64_t tile = 0;
  for (int64_t row = 0, rows = 0; row < block.rows; row += rows) {
    rows = next_tile_rows(block.rows - row, tile_rows);
    const std::byte* const from = a + row * block.ld * size;
    uint32_t* const to = packed + tile_offset(row, tile++, words);
    if (kind == DotKind::bf16_tiles)
      pack_rows_for_tiles(from, block.ld * size, rows, block.num_k, words, to);
    else
      pack_tile_of_rows(kind, from, block.ld * size, rows, block.num_k, words, to);
  }
}

// A vector, or the first `left` lanes of one where no more may be read.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE auto load_up_to(D d, const std::byte* p, int64_t left) {
  if (left >= int64_t(hn::Lanes(d))) return hn::LoadU(d, reinterpret_cast<const T*>(p));
  alignas(64) T some[64 / sizeof(T)] = {};
  std::memcpy(some, p, size_t(left) * sizeof(T));
  return hn::Load(d, some);
}

// Words of a tile's rows at one place of K, from where they stand side by side: at `even`, and for pairs at `odd`
// too, which may be absent. A whole vector is read when there are `left` rows enough.
template <DotKind kKind>
HWY_INLINE auto words_side_by_side(const std::byte* even, const std::byte* odd, int64_t left) {
  const hn::ScalableTag<uint32_t> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const auto load16 = [&](const std::byte* p) { return hn::PromoteTo(d, load_up_to(d16, p, left)); };
  if constexpr (kKind == DotKind::f32) {
    return load_up_to(d, even, left);
  } else if constexpr (kKind == DotKind::bf16_pairs || kKind == DotKind::bf16_tiles) {
    const auto low = load16(even);
    return odd ? hn::Or(low, hn::ShiftLeft<16>(load16(odd))) : low;
  } else if constexpr (kKind == DotKind::bf16_as_f32) {
    return hn::ShiftLeft<16>(load16(even));
  } else {
    const F32Tag f;
    const auto* in = reinterpret_cast<const Float16*>(even);
    return hn::BitCast(d, left >= int64_t(hn::Lanes(d)) ? load(f, in) : load_first(f, in, size_t(left)));
  }
}

// Columns of a: at each place of K the words of all rows stand side by side, and are dealt out to the tiles.
template <DotKind kKind>
HWY_INLINE void pack_a_columns(const BlockOfA& block, uint32_t* packed, int tile_rows) {
  const hn::ScalableTag<uint32_t> d;
  constexpr int64_t kPerWord = kKind == DotKind::bf16_pairs ? 2 : 1, kSize = kKind == DotKind::f32 ? 4 : 2;
  const int64_t words = words_of(kKind, block.num_k), row_bytes = block.ld * kSize;
  const auto* first = static_cast<const std::byte*>(block.a) + (block.k * block.ld + block.row) * kSize;
  for (int64_t word = 0; word < words; ++word) {
    const int64_t k = word * kPerWord;
    const std::byte* const even = first + k * row_bytes;
    for (int64_t i = 0; i < kPerWord && k + kRowsAhead + i < block.num_k; ++i) {
      fetch(even + (kRowsAhead + i) * row_bytes, block.rows * kSize);
    }
    const std::byte* const odd = k + 1 < block.num_k ? even + row_bytes : nullptr;
    int64_t tile = 0;
    for (int64_t row = 0, rows = 0; row < block.rows; row += rows) {
      rows = next_tile_rows(block.rows - row, tile_rows);
      uint32_t* const out = packed + tile_offset(row, tile++, words) + word * rows;
      const auto at = [&](const std::byte* p) { return p ? p + row * kSize : nullptr; };
      hn::StoreU(k < block.num_k ? words_side_by_side<kKind>(at(even), at(odd), block.rows - row) : hn::Zero(d), d,
                 out);
    }
  }
}

// The same for tile registers, whose rows are those of a: 16 words of 16 rows are turned at a time.
HWY_INLINE void pack_columns_for_tiles(const BlockOfA& block, uint32_t* packed, int tile_rows) {
  const hn::ScalableTag<uint32_t> d;
  const int64_t words = words_of(DotKind::bf16_tiles, block.num_k), row_bytes = block.ld * 2;
  const auto* first = static_cast<const std::byte*>(block.a) + (block.k * block.ld + block.row) * 2;
  for (int64_t word = 0; word < words; word += kWords) {
    for (int64_t k = 2 * word + 2 * kWords; k < std::min(block.num_k, 2 * word + 4 * kWords); ++k)
      fetch(first + k * row_bytes, block.rows * 2);
    int64_t tile = 0;
    for (int64_t row = 0, rows = 0; row < block.rows; row += rows) {
      rows = next_tile_rows(block.rows - row, tile_rows);
      uint32_t* const out = packed + tile_offset(row, tile++, words) + word * rows;
      for (int64_t r = 0; r < rows; r += kWords) {
        alignas(64) uint32_t columns[kWords][kWords], turned[kWords][kWords];
        for (int64_t w = 0; w < kWords; ++w) {
          const int64_t k = 2 * (word + w);
          const std::byte* const even = first + k * row_bytes + (row + r) * 2;
          for (int64_t i = 0; i < kWords; i += int64_t(hn::Lanes(d)))
            hn::Store(k < block.num_k ? words_side_by_side<DotKind::bf16_tiles>(
                                            even + 2 * i, k + 1 < block.num_k ? even + row_bytes + 2 * i : nullptr,
                                            std::max<int64_t>(0, block.rows - row - r - i))
                                      : hn::Zero(d),
                      d, columns[w] + i);
        }
        for (int64_t w = 0; w < kWords; w += 4)
          for (int64_t i = 0; i < kWords; i += 4) transpose_4x4(columns[w] + i, kWords, turned[i] + w, kWords);
        std::memcpy(out + r * kWords, turned, size_t(std::min(kWords, rows - r)) * kWords * 4);
      }
    }
  }
}

HWY_INLINE void pack_a_columns(DotKind kind, const BlockOfA& block, uint32_t* packed, int tile_rows) {
  switch (kind) {
    case DotKind::f32: return pack_a_columns<DotKind::f32>(block, packed, tile_rows);
    case DotKind::bf16_pairs: return pack_a_columns<DotKind::bf16_pairs>(block, packed, tile_rows);
    case DotKind::bf16_as_f32: return pack_a_columns<DotKind::bf16_as_f32>(block, packed, tile_rows);
    case DotKind::f16_as_f32: return pack_a_columns<DotKind::f16_as_f32>(block, packed, tile_rows);
    case DotKind::bf16_tiles: return pack_columns_for_tiles(block, packed, tile_rows);
  }
}

inline void pack_a(DotKind kind, bool transposed, const BlockOfA& block, void* packed, int tile_rows) {
  auto* const out = static_cast<uint32_t*>(packed);
  transposed ? pack_a_columns(kind, block, out, tile_rows) : pack_a_rows(kind, block, out, tile_rows);
}

// ---- b ----

// Word `step` of row n of b[N, K]: an f32 or a pair, whose partner past the end is zero.
HWY_INLINE uint32_t word_of(DType type, const void* row, int64_t k, int64_t step) {
  if (type == DType::f32) return static_cast<const uint32_t*>(row)[step];
  const auto* in = static_cast<const uint16_t*>(row) + 2 * step;
  return uint32_t(in[0]) | (2 * step + 1 < k ? uint32_t(in[1]) << 16 : 0);
}

// b[N, K]: rows become columns of the panel. An odd K of bf16 puts rows off word alignment, which x86 allows.
HWY_INLINE void pack_panel_transposed(DType type, const std::byte* b, int64_t k, int64_t cols, int64_t step,
                                      int64_t num_steps, uint32_t* out) {
  const int64_t row_bytes = k * int64_t(size_of(type));
  const int64_t whole = std::min(num_steps, k * int64_t(size_of(type)) / 4 - step) / 4 * 4;  // of complete words
  constexpr int64_t kBlock = 16;  // steps: a cache line of each row
  for (int64_t s0 = 0; s0 < whole; s0 += kBlock) {
    const int64_t s1 = std::min(whole, s0 + kBlock);
    for (int64_t c = 0; c + 4 <= cols && row_bytes % 4 == 0; c += 4) {
      const auto* in = reinterpret_cast<const uint32_t*>(b + c * row_bytes) + step;
      for (int64_t i = 0; i < 4; ++i) __builtin_prefetch(in + s0 + kLinesAhead * kBlock + i * row_bytes / 4);
      for (int64_t s = s0; s < s1; s += 4) transpose_4x4(in + s, row_bytes / 4, out + s * kPanelCols + c, kPanelCols);
    }
  }
  const int64_t done_cols = row_bytes % 4 == 0 ? cols / 4 * 4 : 0;
  for (int64_t s = 0; s < num_steps; ++s) {
    const int64_t first = s < whole ? done_cols : 0;
    for (int64_t c = first; c < cols; ++c) {
      out[s * kPanelCols + c] = word_of(type, b + c * row_bytes, k, step + s);
    }
    for (int64_t c = cols; c < kPanelCols; ++c) out[s * kPanelCols + c] = 0;
  }
}

// b[N, K] of f16, as f32.
HWY_INLINE void pack_panel_transposed_f16(const uint16_t* b, int64_t k, int64_t cols, int64_t step, int64_t num_steps,
                                          uint32_t* out) {
  constexpr int64_t kBlock = 16;
  for (int64_t s0 = 0; s0 < num_steps; s0 += kBlock) {
    const int64_t count = std::min(kBlock, num_steps - s0);
    for (int64_t c = 0; c < kPanelCols; c += 4) {
      alignas(64) uint32_t rows[4][kBlock] = {};
      for (int64_t i = 0; i < std::min<int64_t>(4, cols - c); ++i) {
        widen_as<Float16>(reinterpret_cast<float*>(rows[i]), b + (c + i) * k + step + s0, count);
      }
      uint32_t* to = out + s0 * kPanelCols + c;
      int64_t s = 0;
      for (; s + 4 <= count; s += 4) transpose_4x4(rows[0] + s, kBlock, to + s * kPanelCols, kPanelCols);
      for (; s < count; ++s) {
        for (int64_t i = 0; i < 4; ++i) to[s * kPanelCols + i] = rows[i][s];
      }
    }
  }
}

// b[K, N]
HWY_INLINE void pack_panel_plain(DType type, const std::byte* b, int64_t k, int64_t n, int64_t cols, int64_t step,
                                 int64_t num_steps, uint32_t* out) {
  const int64_t rows_per_step = type == DType::bf16 ? 2 : 1, row_bytes = n * int64_t(size_of(type));
  for (int64_t s = 0; s < num_steps; ++s, out += kPanelCols) {
    for (int64_t i = 0; i < rows_per_step; ++i) {
      fetch(b + ((step + s) * rows_per_step + kRowsAhead + i) * row_bytes, cols * int64_t(size_of(type)));
    }
    if (type == DType::f32) {
      std::memcpy(out, b + (step + s) * n * 4, size_t(cols) * 4);
    } else if (type == DType::f16) {
      const auto* row = reinterpret_cast<const uint16_t*>(b) + (step + s) * n;
      widen_as<Float16>(reinterpret_cast<float*>(out), row, cols);
    } else {
      const auto* even = reinterpret_cast<const uint16_t*>(b) + 2 * (step + s) * n;
      interleave(out, even, 2 * (step + s) + 1 < k ? even + n : nullptr, cols);
    }
    for (int64_t c = cols; c < kPanelCols; ++c) out[c] = 0;
  }
}

inline void pack_panel(DType type, bool transpose_b, const void* b, int64_t k, int64_t n, int64_t panel, int64_t step,
                       int64_t num_steps, void* packed_panel) {
  const int64_t col = panel * kPanelCols, cols = std::min<int64_t>(kPanelCols, n - col);
  auto* out = static_cast<uint32_t*>(packed_panel) + step * kPanelCols;
  const auto* bytes = static_cast<const std::byte*>(b) + (transpose_b ? col * k : col) * int64_t(size_of(type));
  if (transpose_b && type == DType::f16) {
    pack_panel_transposed_f16(reinterpret_cast<const uint16_t*>(bytes), k, cols, step, num_steps, out);
  } else if (transpose_b) {
    pack_panel_transposed(type, bytes, k, cols, step, num_steps, out);
  } else {
    pack_panel_plain(type, bytes, k, n, cols, step, num_steps, out);
  }
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard, once per target
