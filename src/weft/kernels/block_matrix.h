// BlockMatrix: a weight whose rows lie in blocks of quantised neighbours, as a GGUF file has them; it is multiplied
// with as it lies. Source: the block formats of ggml.
#pragma once
#include <cstdint>

#include "weft/tensor/tensor.h"

namespace weft {

enum class BlockType : uint8_t { q8_0, q4_0, q4_k, q6_k };

constexpr int64_t block_elements(BlockType type) {
  return type == BlockType::q8_0 || type == BlockType::q4_0 ? 32 : 256;
}
constexpr int64_t block_bytes(BlockType type) {
  switch (type) {
    case BlockType::q8_0: return 34;
    case BlockType::q4_0: return 18;
    case BlockType::q4_k: return 144;
    case BlockType::q6_k: return 210;
  }
  return 0;
}

// A matrix [rows, cols] for a product; no blocks: none. A row begins with a block of its own; where columns of a whole
// row are cut among ranks, its first `skip` elements and what follows its cols are others' and count as 0.
struct BlockMatrix {
  Tensor blocks;  // [rows, row_bytes()] u8, at any alignment
  BlockType type = BlockType::q8_0;
  int64_t rows = 0, cols = 0;
  int64_t skip = 0;  // less than a block

  explicit operator bool() const { return bool(blocks); }
  int64_t row_blocks() const { return (skip + cols + block_elements(type) - 1) / block_elements(type); }
  int64_t row_bytes() const { return row_blocks() * block_bytes(type); }
};

}  // namespace weft
