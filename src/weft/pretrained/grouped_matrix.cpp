// Grouped matrices: codes of 4 bits with a scale and a zero for each output and group of inputs, eight in a word of
// 32 bits. Sources: Frantar et al., "GPTQ", 2022, as AutoGPTQ stores it; Lin et al., "AWQ", 2023, as AutoAWQ stores
// it.
#include <algorithm>
#include <array>
#include <cstring>

#include "weft/kernels/block_layout.h"
#include "weft/pretrained/packed_matrix.h"

namespace weft {
namespace {

// Where AWQ has the codes of eight neighbours in a word.
constexpr std::array<int, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

// x = scale (code - zero) of element [row, col], where `group` is that of col:
//   GPTQ  qweight [cols / 8, rows], eight neighbours of a column of words' inputs, first lowest
//   AWQ   qweight [cols, rows / 8], eight neighbouring outputs, in AWQ's order
//   both  scales [groups, rows], qzeros [groups, rows / 8] as eight neighbouring outputs, in their orders
class GroupedMatrix final : public PackedMatrix {
 public:
  struct Parts {
    const StoredInfo &codes, &scales, &zeros;
    const StoredInfo* groups;  // of each input; null: neighbours
  };

  GroupedMatrix(const StoredTensors& files, const Parts& parts, int64_t rows, int64_t cols, const HfQuantization& how)
      : PackedMatrix(rows, cols),
        files_(files),
        is_awq_(how.kind == HfQuantization::Kind::awq),
        zeros_less_one_(how.zeros_less_one),
        group_(how.group > 0 ? how.group : cols),
        num_groups_((cols + group_ - 1) / group_),
        codes_(*files.bytes(parts.codes)),
        zeros_(*files.bytes(parts.zeros)),
        scales_(parts.scales) {
    if (parts.groups) read_groups(*parts.groups);
    block_type_ = find_block_type();
  }

  void read(int64_t row, int64_t first, std::span<float> out) const override {
    std::vector<float> scales(static_cast<size_t>(num_groups_));
    std::vector<int> zeros(scales.size());
    read_row_of_groups(row, scales, zeros);
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t col = first + int64_t(i);
      const auto g = size_t(groups_.empty() ? col / group_ : groups_[size_t(col)]);
      out[i] = scales[g] * float(code(row, col) - zeros[g]);
    }
  }

  std::optional<BlockType> block_type() const override { return block_type_; }

  void copy_blocks(int64_t row, int64_t first, std::span<std::byte> out) const override {
    block_type_ == BlockType::w4_g128 ? copy<blocks::W4<128>>(row, first, out)
                                      : copy<blocks::W4<32>>(row, first, out);
  }

 private:
  void read_groups(const StoredInfo& info) {
    const Bytes bytes = *files_.bytes(info);
    groups_.resize(size_t(cols()));
    bool are_neighbours = true;
    for (size_t i = 0; i < groups_.size(); ++i) {
      groups_[i] = load_le<int32_t>(bytes.data() + 4 * i);
      if (groups_[i] < 0 || groups_[i] >= num_groups_)
        throw Error("{}: tensor {} names group {} of {}", files_.path(), info.to_text(), groups_[i], num_groups_);
      are_neighbours &= groups_[i] == int64_t(i) / group_;
    }
    if (are_neighbours) groups_.clear();
  }

  std::optional<BlockType> find_block_type() const {
    if (!groups_.empty() || !scales_are_halves()) return {};
    if (num_groups_ == 1 || group_ % 128 == 0) return BlockType::w4_g128;
    return group_ % 32 == 0 ? std::optional(BlockType::w4_g32) : std::nullopt;
  }

  bool scales_are_halves() const {
    if (scales_.dtype == DType::f16) return true;
    std::vector<float> some(static_cast<size_t>(rows()));
    for (int64_t g = 0; g < num_groups_; ++g) {
      files_.read(scales_, g * rows(), 1, some);
      if (!std::ranges::all_of(some, [](float x) { return Float16::from_bits(Float16::to_bits(x)) == x; }))
        return false;
    }
    return true;
  }

  static int nibble(Bytes words, int64_t word, int64_t place) {
    return int(load_le<uint32_t>(words.data() + 4 * word) >> 4 * place & 15);
  }
  // Of eight neighbouring outputs.
  int64_t place(int64_t row) const { return is_awq_ ? kAwqPlaces[size_t(row % 8)] : row % 8; }

  int code(int64_t row, int64_t col) const {
    if (is_awq_) return nibble(codes_, col * (rows() / 8) + row / 8, place(row));
    return nibble(codes_, col / 8 * rows() + row, col % 8);
  }
  int zero(int64_t row, int64_t group) const {
    return nibble(zeros_, group * (rows() / 8) + row / 8, place(row)) + (zeros_less_one_ ? 1 : 0);
  }
  void read_row_of_groups(int64_t row, std::span<float> scales, std::span<int> zeros) const {
    files_.read(scales_, row, rows(), scales);
    for (size_t g = 0; g < zeros.size(); ++g) zeros[g] = zero(row, int64_t(g));
  }

  template <class Block>
  void copy(int64_t row, int64_t first, std::span<std::byte> out) const {
    for (size_t at = 0; at < out.size(); at += sizeof(Block), ++first) {
      const int64_t col = first * Block::kSize, group = std::min(col, cols() - 1) / group_;
      float scale = 0;
      files_.read(scales_, group * rows() + row, 1, {&scale, 1});
      Block block{.scale = Float16::to_bits(scale), .zero = uint8_t(zero(row, group)), .unused = 0, .q = {}};
      for (int i = 0; i < std::min<int64_t>(Block::kSize, cols() - col); ++i) block.set(i, code(row, col + i));
      std::memcpy(out.data() + at, &block, sizeof(Block));
    }
  }

  const StoredTensors& files_;
  bool is_awq_, zeros_less_one_;
  int64_t group_, num_groups_;
  Bytes codes_, zeros_;
  const StoredInfo& scales_;
  std::vector<int32_t> groups_;  // of each input; empty: neighbours
  std::optional<BlockType> block_type_;
};

// A tensor that must be there, with these dims and one of these dtypes.
const StoredInfo& find_part(const StoredTensors& files, const std::string& name, const std::vector<int64_t>& dims,
                            std::initializer_list<std::string_view> dtype_names) {
  const StoredInfo* const info = files.find(name);
  if (!info) throw Error("{} has no tensor {}, which codes of 4 bits need", files.path(), name);
  if (info->dims != dims || std::ranges::find(dtype_names, info->dtype_name) == dtype_names.end())
    throw Error("{}: tensor {} is not [{}] of {}", files.path(), info->to_text(), fmt::join(dims, ", "),
                fmt::join(dtype_names, ", "));
  return *info;
}

}  // namespace

std::unique_ptr<PackedMatrix> grouped_matrix(const StoredTensors& files, const std::string& base,
                                             const HfQuantization& how) {
  const StoredInfo& codes = *files.find(base + ".qweight");
  const bool is_awq = how.kind == HfQuantization::Kind::awq;
  constexpr int64_t kMost = int64_t(1) << 31;
  if (codes.dims.size() != 2 || codes.dtype != DType::i32 || codes.numel() == 0 || codes.dims[0] > kMost ||
      codes.dims[1] > kMost)
    throw Error("{}: tensor {} is no matrix of words with codes of 4 bits", files.path(), codes.to_text());
  if (!files.bytes(codes))
    throw Error("{}: tensor {} is of 4 bits, which weft reads from safetensors alone", files.path(), codes.to_text());
  const int64_t rows = is_awq ? codes.dims[1] * 8 : codes.dims[1], cols = is_awq ? codes.dims[0] : codes.dims[0] * 8;
  if (rows % 8 != 0)
    throw Error("{}: tensor {} has {} outputs, which are no whole words of zeros", files.path(), codes.to_text(),
                rows);
  const int64_t group = how.group > 0 ? how.group : cols, groups = (cols + group - 1) / group;
  const StoredInfo& scales = find_part(files, base + ".scales", {groups, rows}, {"F16", "BF16", "F32"});
  const StoredInfo& zeros = find_part(files, base + ".qzeros", {groups, rows / 8}, {"I32"});
  const std::string order = base + ".g_idx";
  const StoredInfo* const of_inputs =
      !is_awq && files.find(order) ? &find_part(files, order, {cols}, {"I32"}) : nullptr;
  return std::make_unique<GroupedMatrix>(files, GroupedMatrix::Parts{codes, scales, zeros, of_inputs}, rows, cols,
                                         how);
}

}  // namespace weft
