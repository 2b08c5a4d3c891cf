// Weights in quantised blocks for tests of products with them, and what rounding to codes makes of activations.
#pragma once
#include "weft/kernels/block_matrix.h"
#include "workbench.h"

namespace weft {

inline constexpr BlockType kBlockTypes[] = {BlockType::q8_0, BlockType::q4_0,   BlockType::q4_k,   BlockType::q5_k,
                                            BlockType::q6_k, BlockType::iq4_nl, BlockType::iq4_xs, BlockType::mxfp4,
                                            BlockType::fp8,  BlockType::int8,   BlockType::w4_g32, BlockType::w4_g128,
                                            BlockType::nf4};

inline std::string_view name_of(BlockType type) {
  constexpr std::string_view kNames[] = {"q8_0",  "q4_0", "q4_k", "q5_k",   "q6_k",    "iq4_nl", "iq4_xs",
                                         "mxfp4", "fp8",  "int8", "w4_g32", "w4_g128", "nf4"};
  return kNames[size_t(type)];
}

// Activations stay as they are where weights are decoded to floats.
inline bool rounds_activations(BlockType type) { return type != BlockType::fp8 && type != BlockType::nf4; }

// Blocks of any bytes, but for their scales, which are numbers of usual sizes with either sign, and what is no
// number. On the host, off alignment.
inline BlockMatrix random_blocks(Workbench& bench, BlockType type, int64_t rows, int64_t cols, int64_t skip) {
  BlockMatrix b{.blocks = {}, .type = type, .rows = rows, .cols = cols, .skip = skip};
  b.blocks = bench.host.empty(DType::u8, {rows * b.row_bytes() + 1}).slice_flat(1, {rows, b.row_bytes()});
  auto* const bytes = static_cast<uint8_t*>(b.blocks.raw());
  for (int64_t i = 0; i < b.blocks.numel();) {
    const auto some = philox(3, uint64_t(i));
    const int64_t count = std::min(int64_t(sizeof(some)), b.blocks.numel() - i);
    std::memcpy(bytes + i, some.data(), size_t(count));
    i += count;
  }
  const auto scale = [](int64_t seed) { return float(0.02 * philox_normal(3, name_hash("scales"), uint64_t(seed))); };
  const auto set_half = [&](int64_t at, int64_t seed) {
    const uint16_t half = Float16::to_bits(scale(seed));
    std::memcpy(bytes + at, &half, 2);
  };
  for (int64_t i = 0; i < rows * b.row_blocks(); ++i) {
    const int64_t at = i * block_bytes(type);
    if (type == BlockType::fp8)
      for (int64_t k = at + 4; k < at + 132; ++k)
        if ((bytes[k] & 0x7f) == 0x7f) bytes[k] = 0;
    if (type == BlockType::fp8 || type == BlockType::nf4 || type == BlockType::int8) {
      const float s = scale(type == BlockType::int8 ? i / b.row_blocks() : i);
      std::memcpy(bytes + at, &s, 4);
      continue;
    }
    if (type == BlockType::mxfp4) {
      bytes[at] = uint8_t(119 + bytes[at] % 6);
      continue;
    }
    if (type == BlockType::w4_g32 || type == BlockType::w4_g128) bytes[at + 2] %= 17;
    set_half(at + (type == BlockType::q6_k ? 208 : 0), 2 * i);
    if (type == BlockType::q4_k || type == BlockType::q5_k) set_half(at + 2, 2 * i + 1);
  }
  return b;
}

// y[m, n] = a[m, k] b^T, where rows of b begin `skip` elements into their first block.
struct BlockProduct {
  int64_t m, n, k, skip;
};
inline std::string name_of(BlockType type, const BlockProduct& p, DType dtype) {
  return fmt::format("{}_{}x{}x{}_skip{}_{}", name_of(type), p.m, p.n, p.k, p.skip, name_of(dtype));
}

// a as 8 bits leave it in blocks of `size` elements, row by row from the first element of b's row, and how far off.
struct RoundedActivations {
  std::vector<double> values, errors;

  RoundedActivations(const std::vector<double>& a, const BlockProduct& p, int64_t size)
      : values(a.size()), errors(a.size()) {
    for (int64_t row = 0; row < p.m; ++row)
      for (int64_t begin = -(p.skip % size); begin < p.k; begin += size) {
        float largest = 0;
        const auto each = [&](auto&& visit) {
          for (int64_t k = std::max<int64_t>(0, begin); k < std::min(begin + size, p.k); ++k)
            visit(size_t(row * p.k + k));
        };
        each([&](size_t i) { largest = std::max(largest, std::abs(float(a[i]))); });
        const float scale = largest / 127, inverse = largest > 0 ? 127 / largest : 0;
        each([&](size_t i) {
          values[i] = double(std::nearbyint(float(a[i]) * inverse)) * double(scale);
          errors[i] = 0.5001 * double(scale);
        });
      }
  }
};

}  // namespace weft
