// Decoding of a BlockMatrix block by block.
#include "weft/kernels/block_decode.h"

#include <algorithm>

#include "weft/kernels/block_layout.h"
#include "weft/tensor/ggml_block_layout.h"

namespace weft {
namespace {

template <class Block>
void decode_row_of(const BlockMatrix& b, int64_t row, float* out) {
  const auto* at = static_cast<const std::byte*>(b.blocks.raw()) + row * b.row_bytes();
  for (int64_t i = 0; i < b.row_blocks(); ++i, at += sizeof(Block)) {
    Block block;
    std::memcpy(&block, at, sizeof(Block));
    float values[Block::kSize];
    block.decode(values);
    const int64_t first = i * Block::kSize - b.skip;  // column of values[0]
    const int64_t begin = std::max<int64_t>(first, 0), end = std::min(first + Block::kSize, b.cols);
    std::copy(values + (begin - first), values + (end - first), out + begin);
  }
}

}  // namespace

void decode_row(const BlockMatrix& matrix, int64_t row, float* out) {
  switch (matrix.type) {
    case BlockType::q8_0: return decode_row_of<ggml::Q8_0>(matrix, row, out);
    case BlockType::q4_0: return decode_row_of<ggml::Q4_0>(matrix, row, out);
    case BlockType::q4_k: return decode_row_of<ggml::Q4_K>(matrix, row, out);
    case BlockType::q5_k: return decode_row_of<ggml::Q5_K>(matrix, row, out);
    case BlockType::q6_k: return decode_row_of<ggml::Q6_K>(matrix, row, out);
    case BlockType::iq4_nl: return decode_row_of<ggml::Iq4Nl>(matrix, row, out);
    case BlockType::iq4_xs: return decode_row_of<ggml::Iq4Xs>(matrix, row, out);
    case BlockType::mxfp4: return decode_row_of<ggml::Mxfp4>(matrix, row, out);
    case BlockType::fp8: return decode_row_of<blocks::Fp8>(matrix, row, out);
    case BlockType::int8: return decode_row_of<blocks::Int8>(matrix, row, out);
    case BlockType::w4_g32: return decode_row_of<blocks::W4<32>>(matrix, row, out);
    case BlockType::w4_g128: return decode_row_of<blocks::W4<128>>(matrix, row, out);
    case BlockType::nf4: return decode_row_of<blocks::Nf4>(matrix, row, out);
  }
}

}  // namespace weft
