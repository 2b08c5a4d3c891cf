// Products with weights in quantised blocks.
#include "weft/kernels/cuda/quantised_product.cuh"

namespace weft::cuda {
namespace {

template <class Format>
struct BlockRows {
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

template <class Format>
void multiply(Stream& stream, const MatmulArgs& args) {
  static_assert(Format::kElements % kChunk == 0);
  const BlockMatrix& b = args.blocks_b;
  check(block_elements(b.type) == Format::kElements && block_bytes(b.type) == Format::kBytes,
        "blocks of type {} are not as the cuda kernels read them", int(b.type));
  using Rows = std::conditional_t<Format::kIsFloat, FloatRows<Format>, CodedRows<Format>>;
  const Rows rows{{static_cast<const uint8_t*>(b.blocks.raw()), b.row_bytes(), b.cols, b.skip}};
  if (args.y.dim(0) <= Rows::kMostVectors)
    multiply_few(stream, args, rows);
  else if (b.type != BlockType::fp8 || !matmul_float8(stream, args))
    multiply_many(stream, args, rows, true);  // TF32 keeps more of f32 than the 8 bits that the contract allows
}

}  // namespace

void matmul_blocks(Stream& stream, const MatmulArgs& args) {
  switch (args.blocks_b.type) {
    case BlockType::q8_0: return multiply<Q8_0Format>(stream, args);
    case BlockType::q4_0: return multiply<Q4_0Format>(stream, args);
    case BlockType::q4_k: return multiply<Q4_KFormat>(stream, args);
    case BlockType::q6_k: return multiply<Q6_KFormat>(stream, args);
    case BlockType::fp8: return multiply<Fp8Format>(stream, args);
    case BlockType::int8: return multiply<Int8Format>(stream, args);
    case BlockType::w4_g32: return multiply<W4Format<32>>(stream, args);
    case BlockType::w4_g128: return multiply<W4Format<128>>(stream, args);
    case BlockType::nf4: return multiply<Nf4Format>(stream, args);
  }
}

}  // namespace weft::cuda
