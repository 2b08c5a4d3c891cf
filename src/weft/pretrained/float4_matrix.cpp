// Float4 matrices: codes of 4 bits that are floats (E2M1), two in a byte, with a scale to 16 or 32 neighbours of a
// row. Sources: NVIDIA's NVFP4 as ModelOpt and compressed-tensors store it: scales in E4M3, and one of the whole
// matrix; OCP, "Microscaling Formats", 2023 (MXFP4: scales are powers of two, E8M0).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "weft/pretrained/packed_matrix.h"
#include "weft/tensor/float8.h"
#include "weft/tensor/ggml_block_layout.h"

namespace weft {
namespace {

constexpr std::array<float, 16> kE2M1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
constexpr int64_t kMxGroup = 32;
constexpr float kLargestHalf = 65504;

class Float4Matrix final : public PackedMatrix {
 public:
  struct Parts {
    Bytes codes;                      // [rows, cols / 2], the earlier of two elements in the low half
    Bytes scales;                     // [rows, cols / group], a code each
    std::array<float, 256> scale_of;  // such a code
    int64_t group = 0;
    bool has_powers_of_two = false;  // as scales
  };

  Float4Matrix(std::string name, int64_t rows, int64_t cols, const Parts& parts)
      : PackedMatrix(rows, cols), name_(std::move(name)), p_(parts), fits_q8_0_(can_be_q8_0()) {}

  void read(int64_t row, int64_t first, std::span<float> out) const override {
    for (size_t done = 0; done < out.size();) {
      const int64_t col = first + int64_t(done), group = col / p_.group;
      const size_t end = std::min(out.size(), size_t((group + 1) * p_.group - first));
      const float its_scale = scale(row, group);
      for (; done < end; ++done) out[done] = its_scale * kE2M1[code(row, first + int64_t(done))];
    }
  }

  std::optional<BlockType> block_type() const override {
    return fits_q8_0_ ? std::optional(BlockType::q8_0) : std::nullopt;
  }

  // Twice a code's number is an integer.
  void copy_blocks(int64_t row, int64_t first, std::span<std::byte> out) const override {
    using Block = ggml::Q8_0;
    static_assert(Block::kSize == kMxGroup);
    for (size_t at = 0; at < out.size(); at += sizeof(Block), ++first) {
      Block block{};
      if (first * kMxGroup < cols()) {
        const float d = scale(row, first) / 2;
        block.d = Float16::to_bits(d <= kLargestHalf ? d : 0);  // larger ones are of zeros
        for (int64_t i = 0; i < kMxGroup; ++i)
          block.q[size_t(i)] = int8_t(2 * kE2M1[code(row, first * kMxGroup + i)]);
      }
      std::memcpy(out.data() + at, &block, sizeof(Block));
    }
  }

 private:
  size_t code(int64_t row, int64_t col) const {
    const auto both = std::to_integer<size_t>(p_.codes[size_t((row * cols() + col) / 2)]);
    return col % 2 == 0 ? both & 15 : both >> 4;
  }
  float scale(int64_t row, int64_t group) const {
    const float scale = p_.scale_of[std::to_integer<size_t>(p_.scales[size_t(row * (cols() / p_.group) + group)])];
    if (!std::isfinite(scale)) throw Error("{} has a scale that is no finite number", name_);
    return scale;
  }

  // Whether halves hold all scales but those of nothing but zeros.
  bool can_be_q8_0() const {
    if (!p_.has_powers_of_two) return false;
    std::array<bool, 256> fits{};
    for (size_t i = 0; i < fits.size(); ++i) {
      const float d = p_.scale_of[i] / 2;
      fits[i] = std::isfinite(d) && Float16::from_bits(Float16::to_bits(d)) == d;
    }
    constexpr size_t kBytes = size_t(kMxGroup / 2);
    for (size_t i = 0; i < p_.scales.size(); ++i) {
      if (fits[std::to_integer<size_t>(p_.scales[i])]) continue;
      const Bytes its = p_.codes.subspan(i * kBytes, kBytes);
      if (!std::ranges::all_of(its, [](std::byte b) { return (b & std::byte(0x77)) == std::byte(0); })) return false;
    }
    return true;
  }

  std::string name_;
  Parts p_;
  bool fits_q8_0_;
};

float power_of_two(int code) {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, code - 127);
}

}  // namespace

std::unique_ptr<PackedMatrix> float4_matrix(const StoredTensors& files, const std::string& base,
                                            const HfQuantization&) {
  const StoredInfo* const packed = files.find(base + ".weight_packed");
  const StoredInfo& codes = packed ? *packed : *files.find(base + ".weight");
  const std::string name = fmt::format("{}: tensor {}", files.path(), codes.to_text());
  if (codes.dims.size() != 2 || codes.numel() == 0 || codes.dtype_name != "U8")
    throw Error("{} is no matrix of bytes with two codes each", name);
  if (!files.bytes(codes)) throw Error("{} is of codes, which weft reads from safetensors alone", name);
  const StoredInfo* const scales = files.find(base + ".weight_scale");
  if (!scales) throw Error("{} has no weight_scale beside it", name);
  const bool has_powers = scales->dtype_name == "U8" || scales->dtype_name == "F8_E8M0";
  if (!has_powers && scales->dtype_name != "F8_E4M3")
    throw Error("{} has scales {} beside it, where F8_E4M3 (NVFP4), U8 and F8_E8M0 (MXFP4) are known", name,
                scales->to_text());
  Float4Matrix::Parts parts{.codes = *files.bytes(codes),
                            .scales = *files.bytes(*scales),
                            .scale_of = {},
                            .group = 0,
                            .has_powers_of_two = has_powers};
  const int64_t rows = codes.dims[0], cols = 2 * codes.dims[1];
  for (const int64_t group : {int64_t(16), kMxGroup})
    if (cols % group == 0 && scales->dims == std::vector{rows, cols / group}) parts.group = group;
  if (parts.group == 0 || (has_powers && parts.group != kMxGroup))
    throw Error("{} has scales of another shape beside it, {}", name, scales->to_text());
  // compressed-tensors divides by the whole's scale, ModelOpt multiplies.
  const StoredInfo* const whole = files.find(base + (packed ? ".weight_global_scale" : ".weight_scale_2"));
  if (has_powers == bool(whole))
    throw Error("{} {} beside it", name,
                whole ? "has powers of two and " + whole->name : "has no scale of the whole");
  float of_whole = 1;
  if (whole) {
    if (!whole->dtype || !is_float(*whole->dtype) || whole->numel() != 1)
      throw Error("{}: tensor {} is not one number", files.path(), whole->to_text());
    files.read(*whole, 0, 1, {&of_whole, 1});
    if (!std::isfinite(of_whole) || of_whole <= 0)
      throw Error("{}: tensor {} is no finite positive number", files.path(), whole->to_text());
  }
  for (int i = 0; i < 256; ++i) {
    const float its = has_powers ? power_of_two(i) : float(Float8E4M3::from_bits(uint8_t(i)));
    parts.scale_of[size_t(i)] = packed ? its / of_whole : its * of_whole;
  }
  return std::make_unique<Float4Matrix>(name, rows, cols, parts);
}

}  // namespace weft
