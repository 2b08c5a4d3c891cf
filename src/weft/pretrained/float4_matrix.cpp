// Float4 matrices: codes of 4 bits that are floats (E2M1), two in a byte, with a scale to 16 or 32 neighbours of a
// row. Sources: NVIDIA's NVFP4 as ModelOpt and compressed-tensors store it: scales in E4M3, and one of the whole
// matrix; OCP, "Microscaling Formats", 2023 (MXFP4: scales are powers of two, E8M0).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "weft/pretrained/packed_matrix.h"
#include "weft/tensor/float4.h"
#include "weft/tensor/float8.h"
#include "weft/tensor/ggml_block_layout.h"

namespace weft {
namespace {

constexpr int64_t kMxGroup = 32;

class Float4Matrix final : public PackedMatrix {
 public:
  struct Parts {
    Bytes codes;                      // [rows, cols / 2], the earlier of two elements in the low half
    Bytes scales;                     // [rows, cols / group], a code each
    std::array<float, 256> scale_of;  // such a code
    int64_t group = 0;
    bool has_powers_of_two = false;  // as scales
  };

  Float4Matrix(std::string name, int64_t rows, int64_t cols, const Parts& parts, int64_t stack = 0)
      : PackedMatrix(rows, cols, stack), name_(std::move(name)), p_(parts) {}

  void read(int64_t row, int64_t first, std::span<float> out) const override {
    for (size_t done = 0; done < out.size();) {
      const int64_t col = first + int64_t(done), group = col / p_.group;
      const size_t end = std::min(out.size(), size_t((group + 1) * p_.group - first));
      const float its_scale = scale(row, group);
      for (; done < end; ++done) out[done] = its_scale * float_of_e2m1(code(row, first + int64_t(done)));
    }
  }

  std::optional<BlockType> block_type() const override {
    return p_.has_powers_of_two ? std::optional(BlockType::mxfp4) : std::nullopt;
  }

  void copy_blocks(int64_t row, int64_t first, std::span<std::byte> out) const override {
    using Block = ggml::Mxfp4;
    static_assert(Block::kSize == kMxGroup);
    for (size_t at = 0; at < out.size(); at += sizeof(Block), ++first) {
      Block block{};
      if (const int64_t col = first * kMxGroup; col < cols()) {
        scale(row, first);  // is a number
        block.scale = std::to_integer<uint8_t>(p_.scales[scale_at(row, first)]);
        for (size_t i = 0; i < block.q.size(); ++i) {
          const int64_t low = col + int64_t(i), high = low + kMxGroup / 2;
          block.q[i] = uint8_t(code(row, low) | code(row, high) << 4);
        }
      }
      std::memcpy(out.data() + at, &block, sizeof(Block));
    }
  }

 private:
  unsigned code(int64_t row, int64_t col) const {
    const auto both = std::to_integer<unsigned>(p_.codes[size_t((row * cols() + col) / 2)]);
    return col % 2 == 0 ? both & 15 : both >> 4;
  }
  size_t scale_at(int64_t row, int64_t group) const { return size_t(row * (cols() / p_.group) + group); }
  float scale(int64_t row, int64_t group) const {
    const float scale = p_.scale_of[std::to_integer<size_t>(p_.scales[scale_at(row, group)])];
    if (!std::isfinite(scale)) throw Error("{} has a scale that is no finite number", name_);
    return scale;
  }

  std::string name_;
  Parts p_;
};

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
    const float its = has_powers ? float_of_e8m0(unsigned(i)) : float(Float8E4M3::from_bits(uint8_t(i)));
    parts.scale_of[size_t(i)] = packed ? its / of_whole : its * of_whole;
  }
  return std::make_unique<Float4Matrix>(name, rows, cols, parts);
}

std::unique_ptr<PackedMatrix> mxfp4_stack(const StoredTensors& files, const std::string& base,
                                          const HfQuantization&) {
  const StoredInfo& codes = *files.find(base + std::string(kStackCodes));
  const StoredInfo* const scales = files.find(base + std::string(kStackScales));
  const std::string name = fmt::format("{}: tensor {}", files.path(), codes.to_text());
  constexpr int64_t kGroupBytes = kMxGroup / 2;
  if (codes.dims.size() != 4 || codes.numel() == 0 || codes.dims[3] != kGroupBytes || codes.dtype_name != "U8")
    throw Error("{} is no stack of matrices whose rows are blocks of {} bytes", name, kGroupBytes);
  if (!files.bytes(codes)) throw Error("{} is of codes, which weft reads from safetensors alone", name);
  if (!scales) throw Error("{} has no {}{} beside it", name, base, kStackScales);
  if (scales->dtype_name != "U8" || scales->dims != std::vector(codes.dims.begin(), codes.dims.end() - 1))
    throw Error("{} has scales of another shape or type beside it, {}", name, scales->to_text());
  Float4Matrix::Parts parts{.codes = *files.bytes(codes),
                            .scales = *files.bytes(*scales),
                            .scale_of = {},
                            .group = kMxGroup,
                            .has_powers_of_two = true};
  for (unsigned i = 0; i < parts.scale_of.size(); ++i) parts.scale_of[i] = float_of_e8m0(i);
  return std::make_unique<Float4Matrix>(name, codes.dims[0] * codes.dims[1], codes.dims[2] * kMxGroup, parts,
                                        codes.dims[0]);
}

}  // namespace weft
