// NF4: weights of 4 bits with doubly quantised scales, and where the elements of a rank's part lie in blocks of them.
// Source: Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", 2023.
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "weft/base/function_ref.h"
#include "weft/tensor/tensor.h"

namespace weft::nf4 {

// The quantiles of a normal distribution, with an exact zero and ends at -1 and 1; the table that the paper prints.
inline constexpr std::array<float, 16> kTable = {-1.0f,
                                                 -0.6961928009986877f,
                                                 -0.5250730514526367f,
                                                 -0.39491748809814453f,
                                                 -0.28444138169288635f,
                                                 -0.18477343022823334f,
                                                 -0.09105003625154495f,
                                                 0.0f,
                                                 0.07958029955625534f,
                                                 0.16093020141124725f,
                                                 0.24611230194568634f,
                                                 0.33791524171829224f,
                                                 0.44070982933044434f,
                                                 0.5626170039176941f,
                                                 0.7229568362236023f,
                                                 1.0f};

// 64 neighbours of the whole weight, row by row, share a scale, which is a code of 8 bits: scale = kScales[code] * s
// + offset. 256 blocks share an s, all blocks the offset: 4.127 bits a weight.
inline constexpr int64_t kBlock = 64;
inline constexpr int64_t kBlocksPerGroup = 256;
inline constexpr int64_t kBlockBytes =
    kBlock / 2 + 1;  // the earlier of two elements in the high half; then the scale

constexpr int64_t num_blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }
constexpr int64_t num_groups(int64_t n) { return (num_blocks(n) + kBlocksPerGroup - 1) / kBlocksPerGroup; }

// What the 256 codes of scales stand for, ascending: of each of seven decades below 1 the middles of 1, 2, 4, ...
// intervals with both signs, 0 and 1. Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2021.
inline constexpr std::array<float, 256> kScaleTable = [] {
  constexpr double kEnds[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  std::array<float, 256> table{};
  size_t above = 128, below = 126;  // 127 is 0
  int intervals = 1;
  for (const double end : kEnds) {
    for (int i = 0; i < intervals; ++i) {
      const double middle = end * (0.1 + 0.9 * (i + 0.5) / intervals);
      table[above++] = float(middle), table[below--] = float(-middle);
    }
    intervals *= 2;
  }
  table[255] = 1;
  return table;
}();

// Which elements of a whole matrix are here, and which blocks hold them. Where all that lies between the first and
// the last element is here, one block follows the other; else each row has as many blocks as the longest needs. A
// block that reaches over the edge of what is here is here whole, so that codes do not depend on how a weight is cut.
class Layout {
 public:
  Layout(const Shape& whole, int64_t first_row, int64_t rows, int64_t first_col, int64_t cols);
  // A box of a stack of matrices [E, N, K], whose rows follow one another: here[0] times here[1] rows.
  static Layout of_stack(const Shape& whole, const Shape& here, std::span<const int64_t> first);
  // Rows of what is here, of one matrix of a stack; its blocks are some of those here, from first_block_of(row) on.
  Layout part(int64_t row, int64_t rows) const;
  int64_t first_block_of(int64_t row) const { return place(row, 0).block; }

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t blocks() const { return shares_blocks_ ? row_blocks_ : rows_ * row_blocks_; }
  int64_t bytes() const { return blocks() * kBlockBytes; }
  int64_t whole_numel() const { return whole_rows_ * whole_cols_; }

  // Of a block here: its number in the whole.
  int64_t whole_block(int64_t block) const {
    const int64_t row = shares_blocks_ ? 0 : block / row_blocks_;
    return first_block(row) + block - row * row_blocks_;
  }
  // Where element (row, col) of what is here lies.
  struct Place {
    int64_t block, offset;
  };
  Place place(int64_t row, int64_t col) const {
    const int64_t at = whole_index(row, col), base = shares_blocks_ ? 0 : row;
    return {base * row_blocks_ + at / kBlock - first_block(base), at % kBlock};
  }
  // The same in numbers, for kernels on a device, of one matrix: element (row, col) is element first + row * stride +
  // col of the whole. A row's blocks begin with that of its first element, row_blocks behind those of the row before;
  // 0: rows share them.
  struct Lines {
    int64_t first, stride, row_blocks;
  };
  Lines lines() const { return {whole_index(0, 0), whole_cols_, shares_blocks_ ? 0 : row_blocks_}; }
  // Calls visit(block, offset, first, count) for the runs of elements of blocks [begin, end) here that are neighbours
  // in the whole and inside one block: from `first` of the whole on, at `offset` of the block.
  void each_run(int64_t begin, int64_t end,
                FunctionRef<void(int64_t block, int64_t offset, int64_t first, int64_t count)> visit) const;

 private:
  void count_row_blocks();
  int64_t whole_row(int64_t row) const {
    return first_row_ + (run_rows_ == rows_ ? row : row / run_rows_ * run_stride_ + row % run_rows_);
  }
  int64_t whole_index(int64_t row, int64_t col) const { return whole_row(row) * whole_cols_ + first_col_ + col; }
  int64_t first_block(int64_t row) const { return whole_index(row, 0) / kBlock; }

  int64_t whole_rows_, whole_cols_, first_row_, rows_, first_col_, cols_;
  int64_t run_rows_, run_stride_ = 0;  // rows are runs of neighbours, each run_stride_ behind the one before
  bool shares_blocks_;                 // rows do
  int64_t row_blocks_ = 0;             // of a row; of all rows where they share blocks
};

// Of a block, which is the whole's `whole_block`-th. scales: as Matrix::scales.
float scale_of(const std::byte* block, int64_t whole_block, const Tensor& scales);
// `count` elements of a block, from `offset` on.
void decode_block(const std::byte* block, float scale, int64_t offset, int64_t count, float* out);

// A matrix [rows, cols] for a product; no blocks: none.
struct Matrix {
  Tensor blocks;  // [layout->bytes()] u8
  Tensor scales;  // [groups + 1] f32: s of each group of the whole, then the offset
  const Layout* layout = nullptr;

  explicit operator bool() const { return layout != nullptr; }
  // Rows [row, row + rows), columns [col, col + cols), as out[rows, cols].
  void decode(int64_t row, int64_t rows, int64_t col, int64_t cols, float* out) const;
};

// A stack of matrices for grouped products, whose blocks follow each other; no blocks: none.
struct Stack {
  Tensor blocks, scales;             // as Matrix's, of all
  const Layout* layout = nullptr;    // of all
  std::span<const Layout> matrices;  // the layout of each, which is part() of it

  explicit operator bool() const { return layout != nullptr; }
  Matrix operator[](int64_t i) const;
};

// Quantises a whole weight, of which it keeps the scales and encodes any blocks.
class Encoder {
 public:
  // Elements [first, first + out.size()) of the whole.
  using Read = FunctionRef<void(int64_t first, std::span<float> out)>;

  // Finds every block's scale: reads all of the weight once.
  Encoder(int64_t numel, Read read);
  // The same with the scales that a weight was quantised with before, given the values that it then stood for: gives
  // the same codes.
  Encoder(int64_t numel, std::span<const float> scales, Read read);

  std::span<const float> scales() const { return scales_; }  // [groups + 1], as Matrix::scales
  // Blocks [begin, end) of a layout, kBlockBytes each.
  void encode(const Layout& layout, int64_t begin, int64_t end, Read read, std::byte* out) const;

 private:
  void find_largest(Read read);
  void choose_codes();

  int64_t numel_;
  std::vector<float> largest_;  // of each block's magnitudes
  std::vector<float> scales_;
  std::vector<uint8_t> codes_;  // of each block's scale
};

}  // namespace weft::nf4
