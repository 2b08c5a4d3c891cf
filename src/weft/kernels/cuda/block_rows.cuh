// The rows of a BlockMatrix in a kernel's hands, as chunks of eight elements.
#pragma once
#include <type_traits>

#include "weft/kernels/block_matrix.h"
#include "weft/kernels/cuda/block_formats.cuh"
#include "weft/kernels/cuda/launch.h"

namespace weft::cuda {

template <class Format>
struct BlockRows {
  static_assert(Format::kElements % kChunk == 0);
  static constexpr bool kIsFloat = Format::kIsFloat;
  static constexpr int kMostVectors = 8;
  const uint8_t* blocks;
  int64_t row_bytes, cols, skip;

  __device__ const uint8_t* block(int64_t row, unsigned chunk) const {
    return blocks + row * row_bytes + int64_t(chunk / (Format::kElements / kChunk)) * Format::kBytes;
  }
  __device__ static int element(unsigned chunk) { return int(chunk % (Format::kElements / kChunk)) * kChunk; }
};

template <class Format>
struct CodedRows : BlockRows<Format> {
  static constexpr bool kHasMinus = Format::kHasMinus;
  __device__ Codes codes(int64_t row, unsigned chunk) const {
    return Format::codes(this->block(row, chunk), this->element(chunk));
  }
};

template <class Format>
struct FloatRows : BlockRows<Format> {
  __device__ void floats(int64_t row, unsigned chunk, float (&x)[kChunk]) const {
    Format::floats(this->block(row, chunk), this->element(chunk), x);
  }
};

template <class Rows>
Rows block_rows(const BlockMatrix& b) {
  return Rows{{static_cast<const uint8_t*>(b.blocks.raw()), b.row_bytes(), b.cols, b.skip}};
}

// work(rows) with the rows of b, whose blocks are on the device.
template <class Work>
void with_block_rows(const BlockMatrix& b, Work&& work) {
  const auto of = [&]<class Format>() {
    check(block_elements(b.type) == Format::kElements && block_bytes(b.type) == Format::kBytes,
          "blocks of type {} are not as the cuda kernels read them", int(b.type));
    using Rows = std::conditional_t<Format::kIsFloat, FloatRows<Format>, CodedRows<Format>>;
    work(block_rows<Rows>(b));
  };
  switch (b.type) {
    case BlockType::q8_0: return of.template operator()<Q8_0Format>();
    case BlockType::q4_0: return of.template operator()<Q4_0Format>();
    case BlockType::q4_k: return of.template operator()<Q4_KFormat>();
    case BlockType::q5_k: return of.template operator()<Q5_KFormat>();
    case BlockType::q6_k: return of.template operator()<Q6_KFormat>();
    case BlockType::iq4_nl: return of.template operator()<Iq4NlFormat>();
    case BlockType::iq4_xs: return of.template operator()<Iq4XsFormat>();
    case BlockType::mxfp4: return of.template operator()<Mxfp4Format>();
    case BlockType::fp8: return of.template operator()<Fp8Format>();
    case BlockType::int8: return of.template operator()<Int8Format>();
    case BlockType::w4_g32: return of.template operator()<W4Format<32>>();
    case BlockType::w4_g128: return of.template operator()<W4Format<128>>();
    case BlockType::nf4: return of.template operator()<Nf4Format>();
  }
}

}  // namespace weft::cuda
