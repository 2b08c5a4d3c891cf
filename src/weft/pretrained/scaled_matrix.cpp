// Scaled matrices: codes of 8 bits, floats (E4M3) or integers, with scales of blocks, of rows or of the whole.
// Sources: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024 (blocks of 128 x 128); compressed-tensors.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "weft/base/ceil_div.h"
#include "weft/kernels/block_layout.h"
#include "weft/pretrained/packed_matrix.h"
#include "weft/tensor/float8.h"

namespace weft {
namespace {

class ScaledMatrix final : public PackedMatrix {
 public:
  ScaledMatrix(const StoredTensors& files, const StoredInfo& codes, const StoredInfo& scales,
               const HfQuantization& how)
      : PackedMatrix(codes.dims[0], codes.dims[1]),
        name_(fmt::format("{}: tensor {}", files.path(), codes.to_text())),
        is_float_(codes.dtype_name == "F8_E4M3"),
        codes_(*files.bytes(codes)),
        block_rows_(rows()),
        block_cols_(cols()) {
    const std::vector<int64_t>& d = scales.dims;
    if (how.block_rows > 0 && d == std::vector{ceil_div(rows(), how.block_rows), ceil_div(cols(), how.block_cols)})
      block_rows_ = how.block_rows, block_cols_ = how.block_cols;
    else if (d == std::vector{rows()} || d == std::vector{rows(), int64_t(1)})
      block_rows_ = 1;
    else if (scales.numel() != 1)
      throw Error("{} has scales of another shape, {}", name_, scales.to_text());
    scales_.resize(size_t(scales.numel()));
    files.read(scales, 0, 1, scales_);
    if (!std::ranges::all_of(scales_, [](float x) { return std::isfinite(x); }))
      throw Error("{} has a scale that is no finite number", name_);
  }

  void read(int64_t row, int64_t first, std::span<float> out) const override {
    const std::byte* const from = codes_.data() + row * cols() + first;
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = scale(row, first + int64_t(i)) * value(std::to_integer<uint8_t>(from[i]));
  }

  std::optional<BlockType> block_type() const override {
    const bool is_of_rows = block_cols_ >= cols();
    if (is_float_)
      return is_of_rows || block_cols_ % blocks::Fp8::kSize == 0 ? std::optional(BlockType::fp8) : std::nullopt;
    return is_of_rows && cols() <= kMostInt8Cols ? std::optional(BlockType::int8) : std::nullopt;
  }

  void copy_blocks(int64_t row, int64_t first, std::span<std::byte> out) const override {
    is_float_ ? copy<blocks::Fp8>(row, first, out) : copy<blocks::Int8>(row, first, out);
  }

 private:
  float scale(int64_t row, int64_t col) const {
    return scales_[size_t(row / block_rows_ * ceil_div(cols(), block_cols_) + col / block_cols_)];
  }
  float value(uint8_t code) const { return is_float_ ? float(Float8E4M3::from_bits(code)) : float(int8_t(code)); }

  template <class Block>
  void copy(int64_t row, int64_t first, std::span<std::byte> out) const {
    for (size_t at = 0; at < out.size(); at += sizeof(Block), ++first) {
      const int64_t col = first * Block::kSize;
      Block block{.scale = scale(row, std::min(col, cols() - 1)), .q = {}};
      const int64_t count = std::clamp<int64_t>(cols() - col, 0, Block::kSize);
      if (count > 0) std::memcpy(block.q.data(), codes_.data() + row * cols() + col, size_t(count));
      if (is_float_ &&
          !std::ranges::all_of(block.q, [](auto q) { return Float8E4M3::from_bits(uint8_t(q)).is_number(); }))
        throw Error("{} has a code that is no number", name_);
      std::memcpy(out.data() + at, &block, sizeof(Block));
    }
  }

  std::string name_;
  bool is_float_;
  Bytes codes_;
  int64_t block_rows_, block_cols_;
  std::vector<float> scales_;  // [rows / block_rows_, cols / block_cols_], rounded up
};

}  // namespace

std::unique_ptr<PackedMatrix> scaled_matrix(const StoredTensors& files, const std::string& base,
                                            const HfQuantization& how) {
  const StoredInfo& codes = *files.find(base + ".weight");
  const auto refuse = [&](std::string_view what) {
    throw Error("{}: tensor {} {}", files.path(), codes.to_text(), what);
  };
  const StoredInfo* scales = files.find(base + ".weight_scale");
  if (!scales) scales = files.find(base + ".weight_scale_inv");
  if (!scales) refuse("has neither weight_scale nor weight_scale_inv beside it");
  if (files.find(base + ".weight_zero_point")) refuse("has zeros beside its scales, which weft does not read");
  if (codes.dims.size() != 2 || codes.numel() == 0) refuse("is no matrix, and only those are read from 8 bits");
  if (!scales->dtype || !is_float(*scales->dtype))
    throw Error("{}: tensor {} holds no scales", files.path(), scales->to_text());
  if (!files.bytes(codes)) refuse("is of 8 bits, which weft reads from safetensors alone");
  return std::make_unique<ScaledMatrix>(files, codes, *scales, how);
}

}  // namespace weft
