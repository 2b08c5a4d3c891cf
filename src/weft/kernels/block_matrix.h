// BlockMatrix: a weight whose rows lie in blocks of quantised neighbours, which products read as they lie.
#pragma once
#include <cstdint>

#include "weft/tensor/tensor.h"

namespace weft {

// The first eight as a GGUF file has them (see tensor/ggml_block_layout.h), the others as block_layout.h says: floats
// and integers of 8 bits, codes of 4 bits with a scale and a zero to 32 or 128 neighbours, and NF4.
enum class BlockType : uint8_t {
  q8_0,
  q4_0,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
  fp8,
  int8,
  w4_g32,
  w4_g128,
  nf4
};

constexpr int64_t block_elements(BlockType type) {
  switch (type) {
    case BlockType::q8_0:
    case BlockType::q4_0:
    case BlockType::iq4_nl:
    case BlockType::mxfp4:
    case BlockType::w4_g32: return 32;
    case BlockType::nf4: return 64;
    case BlockType::fp8:
    case BlockType::int8:
    case BlockType::w4_g128: return 128;
    case BlockType::q4_k:
    case BlockType::q5_k:
    case BlockType::q6_k:
    case BlockType::iq4_xs: return 256;
  }
  return 0;
}
constexpr int64_t block_bytes(BlockType type) {
  switch (type) {
    case BlockType::q8_0: return 34;
    case BlockType::q4_0:
    case BlockType::iq4_nl: return 18;
    case BlockType::q4_k: return 144;
    case BlockType::q5_k: return 176;
    case BlockType::q6_k: return 210;
    case BlockType::iq4_xs: return 136;
    case BlockType::mxfp4: return 17;
    case BlockType::fp8:
    case BlockType::int8: return 132;
    case BlockType::w4_g32: return 20;
    case BlockType::w4_g128: return 68;
    case BlockType::nf4: return 36;
  }
  return 0;
}

// Sums of so many products of two int8 are in 32 bits: more columns than that an int8 matrix cannot have.
inline constexpr int64_t kMostInt8Cols = 1 << 17;

// A matrix [rows, cols] for a product; no blocks: none. A row begins with a block of its own; where columns of a
// whole row are cut among ranks, its first `skip` elements and what follows its cols are others' and count as 0.
struct BlockMatrix {
  // [rows, row_bytes()] u8, at any alignment. In memory of the device whose kernels get it: blocks of a file that is
  // mapped serve the CPU's as they lie, and are copied to a device first.
  Tensor blocks;
  BlockType type = BlockType::q8_0;
  bool has_row_scales = false;  // known: all blocks of a row have one scale; of fp8, where products depend on it
  int64_t rows = 0, cols = 0;
  int64_t skip = 0;  // less than a block

  explicit operator bool() const { return bool(blocks); }
  int64_t row_blocks() const { return (skip + cols + block_elements(type) - 1) / block_elements(type); }
  int64_t row_bytes() const { return row_blocks() * block_bytes(type); }
  const std::byte* row(int64_t i) const { return static_cast<const std::byte*>(blocks.raw()) + i * row_bytes(); }
};

}  // namespace weft
