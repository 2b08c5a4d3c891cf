// Scaled matrices: codes of 8 bits, floats (E4M3) or integers, with scales of blocks, of rows or of the whole, and
// perhaps zeros. Sources: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024 (blocks of 128 x 128);
// compressed-tensors; Dettmers et al., "LLM.int8()", 2022, as bitsandbytes stores it; scales that are powers of two:
// OCP, "Microscaling Formats", 2023 (E8M0).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "weft/base/ceil_div.h"
#include "weft/kernels/block_layout.h"
#include "weft/pretrained/packed_matrix.h"
#include "weft/tensor/float8.h"

namespace weft {
namespace {

// Of a row: its largest magnitude, which a code of 127 stands for.
constexpr std::string_view kLargestOfRows = ".SCB";

bool is_power_of_two(const StoredInfo& scales) { return scales.dtype_name == "F8_E8M0" || scales.dtype_name == "U8"; }

std::vector<float> read_scale_values(const StoredTensors& files, const StoredInfo& info) {
  std::vector<float> values(size_t(info.numel()));
  if (is_power_of_two(info)) {
    const Bytes bytes = *files.bytes(info);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto exponent = std::to_integer<int>(bytes[i]);
      values[i] = exponent == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, exponent - 127);
    }
    return values;
  }
  files.read(info, 0, 1, values);
  if (info.name.ends_with(kLargestOfRows))
    for (float& x : values) x /= 127;
  return values;
}

class ScaledMatrix final : public PackedMatrix {
 public:
  // zeros: none, or as many as scales.
  ScaledMatrix(const StoredTensors& files, const StoredInfo& codes, const StoredInfo& scales, const StoredInfo* zeros,
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
    scales_ = read_scale_values(files, scales);
    if (!std::ranges::all_of(scales_, [](float x) { return std::isfinite(x); }))
      throw Error("{} has a scale that is no finite number", name_);
    if (zeros) read_zeros(files, *zeros);
  }

  void read(int64_t row, int64_t first, std::span<float> out) const override {
    const std::byte* const from = codes_.data() + row * cols() + first;
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t share = share_of(row, first + int64_t(i));
      const float code = value(std::to_integer<uint8_t>(from[i]));
      out[i] = scales_[share] * (zeros_.empty() ? code : code - float(zeros_[share]));
    }
  }

  std::optional<BlockType> block_type() const override {
    const bool is_of_rows = block_cols_ >= cols();
    if (!zeros_.empty()) return {};
    if (is_float_)
      return is_of_rows || block_cols_ % blocks::Fp8::kSize == 0 ? std::optional(BlockType::fp8) : std::nullopt;
    return is_of_rows && cols() <= kMostInt8Cols ? std::optional(BlockType::int8) : std::nullopt;
  }

  void copy_blocks(int64_t row, int64_t first, std::span<std::byte> out) const override {
    is_float_ ? copy<blocks::Fp8>(row, first, out) : copy<blocks::Int8>(row, first, out);
  }

 private:
  void read_zeros(const StoredTensors& files, const StoredInfo& info) {
    const Bytes bytes = *files.bytes(info);
    if (std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte(0); })) return;
    if (info.dtype_name != "I8" || info.numel() != int64_t(scales_.size()))
      throw Error("{} has zeros of another shape or dtype, {}", name_, info.to_text());
    for (const std::byte b : bytes) zeros_.push_back(int8_t(std::to_integer<uint8_t>(b)));
  }

  size_t share_of(int64_t row, int64_t col) const {
    return size_t(row / block_rows_ * ceil_div(cols(), block_cols_) + col / block_cols_);
  }
  float value(uint8_t code) const { return is_float_ ? float(Float8E4M3::from_bits(code)) : float(int8_t(code)); }

  template <class Block>
  void copy(int64_t row, int64_t first, std::span<std::byte> out) const {
    for (size_t at = 0; at < out.size(); at += sizeof(Block), ++first) {
      const int64_t col = first * Block::kSize;
      Block block{.scale = scales_[share_of(row, std::min(col, cols() - 1))], .q = {}};
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
  std::vector<int8_t> zeros_;  // as many; empty: all are 0
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
  if (!scales) scales = files.find(base + std::string(kLargestOfRows));
  if (!scales) refuse("has neither weight_scale nor weight_scale_inv beside it");
  if (codes.dims.size() != 2 || codes.numel() == 0) refuse("is no matrix, and only those are read from 8 bits");
  if (!is_power_of_two(*scales) && (!scales->dtype || !is_float(*scales->dtype)))
    throw Error("{}: tensor {} holds no scales", files.path(), scales->to_text());
  if (!files.bytes(codes)) refuse("is of 8 bits, which weft reads from safetensors alone");
  const StoredInfo* const zeros = files.find(base + ".weight_zero_point");
  if (how.has_zeros && !zeros) refuse("has no weight_zero_point beside it, which symmetric = false needs");
  return std::make_unique<ScaledMatrix>(files, codes, *scales, zeros, how);
}

}  // namespace weft
