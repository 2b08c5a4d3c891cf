// Products with NF4 weights whose scales are quantised too.
#include "weft/kernels/cuda/quantised_product.cuh"

namespace weft::cuda {
namespace {

__device__ const DeviceTable<float, 256> kScaleTable = device_table(nf4::kScaleTable);

__device__ __forceinline__ unsigned code_at(const uint8_t* block, int i) {
  const unsigned both = __ldg(block + i / 2);
  return i % 2 ? both & 15 : both >> 4;
}

// A weight as nf4::Layout has it. Where rows begin at multiples of 8 of the whole, a chunk is in one block.
template <bool kIsAligned>
struct Nf4Rows {
  static constexpr bool kIsFloat = true;
  // With more, the sums of floats outweigh what is read; where chunks are in odd places, the registers end.
  static constexpr int kMostVectors = kIsAligned ? 4 : 2;
  const uint8_t* blocks;
  const float* scales;  // of groups, then the offset
  int64_t num_groups;
  nf4::Layout::Lines lines;
  int64_t cols;
  int64_t skip = 0;

  __device__ void floats(int64_t row, unsigned chunk, float (&x)[kChunk]) const {
    const int64_t line = lines.first + row * lines.stride;  // of the whole, which numbers elements through
    const int64_t first = line + int64_t(chunk) * kChunk;
    const int64_t first_block = (lines.row_blocks ? line : lines.first) / nf4::kBlock - row * lines.row_blocks;
    const int64_t whole_block = first / nf4::kBlock;
    const uint8_t* const block = blocks + (whole_block - first_block) * nf4::kBlockBytes;
    const int offset = int(first % nf4::kBlock);
    const float scale = scale_of(block, whole_block);
    if constexpr (kIsAligned) {
      const unsigned codes = load_word(block + offset / 2);
      for (int i = 0; i < kChunk; ++i)
        x[i] = __ldg(kNf4Table.values + (codes >> (8 * (i / 2) + (i % 2 ? 0 : 4)) & 15)) * scale;
    } else {
      const int count = int(min(int64_t(kChunk), cols - int64_t(chunk) * kChunk));
      const bool has_next = offset + count > nf4::kBlock;
      const float next_scale = has_next ? scale_of(block + nf4::kBlockBytes, whole_block + 1) : 0;
      for (int i = 0; i < kChunk; ++i) {
        const int at = offset + min(i, count - 1);  // others are behind the last column
        const bool is_next = at >= nf4::kBlock;
        x[i] = __ldg(kNf4Table.values + code_at(block + (is_next ? nf4::kBlockBytes : 0), at % int(nf4::kBlock))) *
               (is_next ? next_scale : scale);
      }
    }
  }

 private:
  __device__ float scale_of(const uint8_t* block, int64_t whole_block) const {
    const float scale = __ldg(kScaleTable.values + __ldg(block + nf4::kBlock / 2));
    return __fadd_rn(__fmul_rn(scale, __ldg(scales + whole_block / nf4::kBlocksPerGroup)),
                     __ldg(scales + num_groups));
  }
};

template <bool kIsAligned>
void multiply(Stream& stream, const MatmulArgs& args) {
  const nf4::Matrix& b = args.nf4_b;
  const Nf4Rows<kIsAligned> rows{.blocks = static_cast<const uint8_t*>(b.blocks.raw()),
                                 .scales = device_data<float>(b.scales),
                                 .num_groups = b.scales.numel() - 1,
                                 .lines = b.layout->lines(),
                                 .cols = b.layout->cols()};
  if (args.y.dim(0) <= rows.kMostVectors && args.transpose_b && !args.transpose_a) {
    VectorsOfA a(stream, args.a);
    multiply_few<Nf4Rows<kIsAligned>>(stream, std::span(&args, 1), a, {.most = int(args.y.dim(0))},
                                      [&](const MatmulArgs&) { return rows; });
  } else {
    multiply_many(stream, args, rows, false);
  }
}

}  // namespace

void matmul_nf4(Stream& stream, const MatmulArgs& args) {
  const nf4::Layout::Lines lines = args.nf4_b.layout->lines();
  if (lines.first % kChunk == 0 && lines.stride % kChunk == 0 && args.nf4_b.layout->cols() % kChunk == 0)
    multiply<true>(stream, args);
  else
    multiply<false>(stream, args);
}

}  // namespace weft::cuda
