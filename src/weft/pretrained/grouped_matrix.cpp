// Grouped matrices: codes of a few bits in words of 32, with a scale and a zero for each output and group of inputs.
// Sources: Frantar et al., "GPTQ", 2022, as AutoGPTQ and GPTQModel store it; Lin et al., "AWQ", 2023, as AutoAWQ
// stores it; compressed-tensors' pack-quantized.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "weft/base/ceil_div.h"
#include "weft/kernels/block_layout.h"
#include "weft/pretrained/packed_matrix.h"
#include "weft/tensor/ggml_block_layout.h"

namespace weft {
namespace {

// Where AWQ has the codes of eight neighbours in a word.
constexpr std::array<int, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};
int64_t awq_place(int64_t i) { return i / 8 * 8 + kAwqPlaces[size_t(i % 8)]; }

int64_t words_of(int64_t codes, int64_t bits) { return ceil_div(codes * bits, int64_t(32)); }

// Lines of codes, each a stream of bits, lowest first, through words `word_stride` apart; or in planes: of every 32
// codes the low 4, 2 or 8 bits each, then the bits above these.
struct CodeLines {
  Bytes words;
  int64_t line_stride = 0, word_stride = 0;
  int bits = 4;
  bool is_less_one = false;  // of zeros: stored minus one
  bool is_planar = false;

  int at(int64_t line, int64_t i) const {
    if (is_planar) return planar_at(line, i);
    const int64_t bit = i * bits, shift = bit % 32;
    const int64_t place = line * line_stride + bit / 32 * word_stride;
    uint64_t window = load(place);
    if (shift + bits > 32) window |= uint64_t(load(place + word_stride)) << 32;
    const auto mask = (uint64_t(1) << bits) - 1;
    const auto code = int(window >> shift & mask);
    return is_less_one && !has_whole_codes() ? int((uint64_t(code) + 1) & mask) : code;
  }

 private:
  int planar_at(int64_t line, int64_t i) const {
    int64_t word = i / 32 * bits;
    int code = 0, offset = 0;
    for (const int width : {8, 4, 2, 1}) {
      if ((bits & width) == 0) continue;
      const int64_t bit = i % 32 * width;
      const uint32_t plane = load(line * line_stride + (word + bit / 32) * word_stride);
      code |= int(plane >> bit % 32 & ((1u << width) - 1)) << offset;
      word += width, offset += width;
    }
    return code;
  }
  bool has_whole_codes() const { return 32 % bits == 0; }
  // GPTQModel takes one from all codes of a word at once, so that a zero of 0 borrows from its neighbour.
  uint32_t load(int64_t place) const {
    const auto word = load_le<uint32_t>(words.data() + 4 * place);
    return is_less_one && has_whole_codes() ? word + 0xffffffffu / ((1u << bits) - 1) : word;
  }
};

// x = scale (code - zero) of element [row, col], where `group` is that of col:
//   GPTQ                qweight [words of cols, rows], scales [groups, rows], qzeros [groups, words of rows]
//   AWQ, gemm           qweight [cols, words of rows], the others as GPTQ; words have AWQ's order
//   AWQ, gemv           qweight [rows, words of cols], scales [rows, 8 words], qzeros [rows, words of groups or more]
//   compressed-tensors  weight_packed [rows, words of cols], weight_scale [rows, groups] or [1], weight_zero_point
//                       [words of rows, groups]
struct GroupedParts {
  int64_t rows = 0, cols = 0, group = 0;
  CodeLines codes;                     // a line is a row; AWQ: a column
  std::optional<CodeLines> zeros;      // a line is a group; AWQ, gemv: a row; none: the middle of the codes
  const StoredInfo* scales = nullptr;  // element [row, group] is at row * row_stride + group * group_stride
  int64_t row_stride = 0, group_stride = 0;
  const StoredInfo* groups = nullptr;  // of each input; null: neighbours
  bool is_awq = false;                 // gemm
  bool is_gemv = false;                // of AWQ
};

class GroupedMatrix final : public PackedMatrix {
 public:
  GroupedMatrix(const StoredTensors& files, const GroupedParts& parts)
      : PackedMatrix(parts.rows, parts.cols),
        files_(files),
        p_(parts),
        num_groups_(ceil_div(parts.cols, parts.group)) {
    if (p_.groups) read_groups(*p_.groups);
    block_type_ = find_block_type();
  }

  void read(int64_t row, int64_t first, std::span<float> out) const override {
    std::vector<float> scales(static_cast<size_t>(num_groups_));
    read_scales(row, scales);
    std::vector<int> zeros(scales.size());
    for (size_t g = 0; g < zeros.size(); ++g) zeros[g] = zero(row, int64_t(g));
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t col = first + int64_t(i);
      const auto g = size_t(groups_.empty() ? col / p_.group : groups_[size_t(col)]);
      out[i] = scales[g] * float(code(row, col) - zeros[g]);
    }
  }

  std::optional<BlockType> block_type() const override { return block_type_; }

  void copy_blocks(int64_t row, int64_t first, std::span<std::byte> out) const override {
    switch (*block_type_) {
      case BlockType::w4_g128: return copy<blocks::W4<128>>(row, first, out);
      case BlockType::w4_g32: return copy<blocks::W4<32>>(row, first, out);
      default: return copy<ggml::Q8_0>(row, first, out);
    }
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
      are_neighbours &= groups_[i] == int64_t(i) / p_.group;
    }
    if (are_neighbours) groups_.clear();
  }

  std::optional<BlockType> find_block_type() const {
    const bool is_one = num_groups_ == 1;
    if (!groups_.empty() || (!is_one && p_.group % 32 != 0) || !scales_are_halves()) return {};
    if (p_.codes.bits > 4) return fits_bytes() ? std::optional(BlockType::q8_0) : std::nullopt;
    return is_one || p_.group % 128 == 0 ? BlockType::w4_g128 : BlockType::w4_g32;
  }

  bool scales_are_halves() const {
    if (p_.scales->dtype == DType::f16) return true;
    std::vector<float> some(static_cast<size_t>(num_groups_));
    for (int64_t row = 0; row < rows(); ++row) {
      read_scales(row, some);
      if (!std::ranges::all_of(some, [](float x) { return Float16::from_bits(Float16::to_bits(x)) == x; }))
        return false;
    }
    return true;
  }

  // Whether every code less its zero is an integer of 8 bits.
  bool fits_bytes() const {
    const int largest = (1 << p_.codes.bits) - 1;
    if (!p_.zeros) return true;
    for (int64_t g = 0; g < num_groups_; ++g)
      for (int64_t row = 0; row < rows(); ++row)
        if (const int z = zero(row, g); z > 128 || largest - z > 127) return false;
    return true;
  }

  int code(int64_t row, int64_t col) const {
    return p_.is_awq ? p_.codes.at(col, awq_place(row)) : p_.codes.at(row, col);
  }
  int zero(int64_t row, int64_t group) const {
    if (!p_.zeros) return 1 << (p_.codes.bits - 1);
    if (p_.is_gemv) return p_.zeros->at(row, group);
    return p_.zeros->at(group, p_.is_awq ? awq_place(row) : row);
  }
  void read_scales(int64_t row, std::span<float> scales, int64_t first = 0) const {
    files_.read(*p_.scales, row * p_.row_stride + first * p_.group_stride, p_.group_stride, scales);
    if (!std::ranges::all_of(scales, [](float x) { return std::isfinite(x); }))
      throw Error("{}: tensor {} has a scale that is no finite number", files_.path(), p_.scales->to_text());
  }

  static void set(ggml::Q8_0& block, int i, int code, int zero) { block.q[size_t(i)] = int8_t(code - zero); }
  template <int kElements>
  static void set(blocks::W4<kElements>& block, int i, int code, int) {
    block.set(i, code);
  }

  template <class Block>
  void copy(int64_t row, int64_t first, std::span<std::byte> out) const {
    for (size_t at = 0; at < out.size(); at += sizeof(Block), ++first) {
      const int64_t col = first * Block::kSize, group = std::min(col, cols() - 1) / p_.group;
      float scale = 0;
      read_scales(row, {&scale, 1}, group);
      const int its_zero = zero(row, group);
      Block block{};
      if constexpr (std::is_same_v<Block, ggml::Q8_0>)
        block.d = Float16::to_bits(scale);
      else
        block.scale = Float16::to_bits(scale), block.zero = uint8_t(its_zero);
      for (int i = 0; i < std::min<int64_t>(Block::kSize, cols() - col); ++i)
        set(block, i, code(row, col + i), its_zero);
      std::memcpy(out.data() + at, &block, sizeof(Block));
    }
  }

  const StoredTensors& files_;
  GroupedParts p_;
  int64_t num_groups_;
  std::vector<int32_t> groups_;  // of each input; empty: neighbours
  std::optional<BlockType> block_type_;
};

constexpr int64_t kMostOfDim = int64_t(1) << 31;

// A tensor that must be there, with these dims and one of these dtypes.
const StoredInfo& find_part(const StoredTensors& files, const std::string& name, const std::vector<int64_t>& dims,
                            std::initializer_list<std::string_view> dtype_names) {
  const StoredInfo* const info = files.find(name);
  if (!info) throw Error("{} has no tensor {}, which codes in words need", files.path(), name);
  if (info->dims != dims || std::ranges::find(dtype_names, info->dtype_name) == dtype_names.end())
    throw Error("{}: tensor {} is not [{}] of {}", files.path(), info->to_text(), fmt::join(dims, ", "),
                fmt::join(dtype_names, ", "));
  return *info;
}

const StoredInfo& find_codes(const StoredTensors& files, const std::string& name) {
  const StoredInfo& codes = *files.find(name);
  if (codes.dims.size() != 2 || codes.dtype != DType::i32 || codes.numel() == 0 || codes.dims[0] > kMostOfDim ||
      codes.dims[1] > kMostOfDim)
    throw Error("{}: tensor {} is no matrix of words with codes", files.path(), codes.to_text());
  if (!files.bytes(codes))
    throw Error("{}: tensor {} is of codes, which weft reads from safetensors alone", files.path(), codes.to_text());
  return codes;
}

// Columns of a matrix at `name`, which is there; 0: it has another shape.
int64_t columns(const StoredTensors& files, const std::string& name) {
  const StoredInfo* const info = files.find(name);
  if (!info) throw Error("{} has no tensor {}, which codes in words need", files.path(), name);
  return info->dims.size() == 2 && info->dims[1] <= kMostOfDim ? info->dims[1] : 0;
}

// Inputs of a group, where `groups` share `cols`; 0: none.
int64_t even_group(int64_t cols, int64_t groups) { return groups > 0 && cols % groups == 0 ? cols / groups : 0; }

// Where bits and groups are the weight's own, its tensors' shapes say them.
void find_own(const StoredTensors& files, const StoredInfo& codes, const std::string& base, HfQuantization& how) {
  const int64_t rows = codes.dims[1];
  const auto can_be = [&](int64_t bits) {
    return bits == 2 || bits == 3 || bits == 4 || bits == 8 || (how.is_planar && bits > 4 && bits < 8);
  };
  how.bits = columns(files, base + ".qzeros") * 32 / rows;
  const StoredInfo* const scales = files.find(base + ".scales");
  if (can_be(how.bits) && scales && !scales->dims.empty())
    how.group = even_group(codes.dims[0] * 32 / how.bits, scales->dims[0]);
  if (!can_be(how.bits) || how.group == 0)
    throw Error("{}: tensor {} has zeros and scales of other shapes beside it", files.path(), codes.to_text());
}

std::unique_ptr<PackedMatrix> gemv_matrix(const StoredTensors& files, const std::string& base,
                                          const HfQuantization& how) {
  const StoredInfo& codes = find_codes(files, base + ".qweight");
  GroupedParts p{.rows = codes.dims[0], .cols = codes.dims[1] * 8, .is_gemv = true};
  p.group = how.group > 0 ? how.group : p.cols;
  const int64_t words = columns(files, base + ".qzeros");
  if (words < words_of(ceil_div(p.cols, p.group), how.bits))
    throw Error("{}: tensor {} has fewer zeros beside it than groups of inputs", files.path(), codes.to_text());
  p.codes = {.words = *files.bytes(codes), .line_stride = codes.dims[1], .word_stride = 1};
  p.scales = &find_part(files, base + ".scales", {p.rows, 8 * words}, {"F16", "BF16", "F32"});
  p.row_stride = 8 * words, p.group_stride = 1;
  p.zeros = {.words = *files.bytes(find_part(files, base + ".qzeros", {p.rows, words}, {"I32"})),
             .line_stride = words,
             .word_stride = 1};
  return std::make_unique<GroupedMatrix>(files, p);
}

}  // namespace

std::unique_ptr<PackedMatrix> grouped_matrix(const StoredTensors& files, const std::string& base,
                                             const HfQuantization& of_all) {
  if (of_all.has_lines_of_outputs) return gemv_matrix(files, base, of_all);
  HfQuantization how = of_all;
  const StoredInfo& codes = find_codes(files, base + ".qweight");
  GroupedParts p{.is_awq = how.kind == HfQuantization::Kind::awq};
  if (how.varies) find_own(files, codes, base, how);
  const int64_t bits = how.bits;
  p.rows = p.is_awq ? codes.dims[1] * 8 : codes.dims[1];
  p.cols = p.is_awq ? codes.dims[0] : codes.dims[0] * 32 / bits;
  const bool has_planes = how.is_planar && 32 % bits != 0;  // of 32 codes each
  if (p.rows * bits % 32 != 0 || (!p.is_awq && codes.dims[0] * 32 % bits != 0) ||
      (has_planes && (p.rows % 32 != 0 || codes.dims[0] % bits != 0)))
    throw Error("{}: tensor {} has {} outputs and words that are no whole words of codes of {} bits", files.path(),
                codes.to_text(), p.rows, bits);
  p.group = how.group > 0 ? how.group : p.cols;
  const int64_t groups = ceil_div(p.cols, p.group), words = words_of(p.rows, bits);
  p.codes = {.words = *files.bytes(codes),
             .line_stride = p.is_awq ? words : 1,
             .word_stride = p.is_awq ? 1 : p.rows,
             .bits = int(bits),
             .is_planar = how.is_planar};
  p.scales = &find_part(files, base + ".scales", {groups, p.rows}, {"F16", "BF16", "F32"});
  p.row_stride = 1, p.group_stride = p.rows;
  p.zeros = {.words = *files.bytes(find_part(files, base + ".qzeros", {groups, words}, {"I32"})),
             .line_stride = words,
             .word_stride = 1,
             .bits = int(bits),
             .is_less_one = how.zeros_less_one,
             .is_planar = how.is_planar};
  if (const std::string order = base + ".g_idx"; !p.is_awq && files.find(order))
    p.groups = &find_part(files, order, {p.cols}, {"I32"});
  return std::make_unique<GroupedMatrix>(files, p);
}

std::unique_ptr<PackedMatrix> words_matrix(const StoredTensors& files, const std::string& base,
                                           const HfQuantization& how) {
  const StoredInfo& codes = find_codes(files, base + ".weight_packed");
  const auto refuse = [&](std::string_view what) {
    throw Error("{}: tensor {} {}", files.path(), codes.to_text(), what);
  };
  const StoredInfo& shape = find_part(files, base + ".weight_shape", {2}, {"I64", "I32"});
  const Bytes sides = *files.bytes(shape);
  const auto side = [&](size_t i) -> int64_t {
    if (shape.dtype_name == "I64") return load_le<int64_t>(sides.data() + 8 * i);
    return load_le<int32_t>(sides.data() + 4 * i);
  };
  GroupedParts p{.rows = side(0), .cols = side(1)};
  if (p.rows != codes.dims[0] || p.cols < 32 || p.cols > kMostOfDim)
    refuse("does not have the rows of weight_shape, or has fewer than 32 columns");
  int64_t bits = how.bits;
  if (how.varies)
    for (bits = 2; bits < 8 && words_of(p.cols, bits) < codes.dims[1];) ++bits;
  if (words_of(p.cols, bits) != codes.dims[1])
    refuse(fmt::format("has not the words of {} codes of {} bits each", p.cols, bits));
  p.scales = files.find(base + ".weight_scale");
  if (!p.scales || !p.scales->dtype || !is_float(*p.scales->dtype)) refuse("has no weight_scale of floats beside it");
  const bool is_one = p.scales->numel() == 1;
  const int64_t groups = is_one ? 1 : columns(files, p.scales->name);
  p.group = how.varies ? even_group(p.cols, groups) : how.group > 0 ? how.group : p.cols;
  if (p.group == 0 || ceil_div(p.cols, p.group) != groups) refuse("has scales of another shape beside it");
  if (!is_one) p.scales = &find_part(files, p.scales->name, {p.rows, groups}, {"F16", "BF16", "F32"});
  p.row_stride = is_one ? 0 : groups, p.group_stride = 1;
  p.codes = {.words = *files.bytes(codes), .line_stride = codes.dims[1], .word_stride = 1, .bits = int(bits)};
  const std::string zeros = base + ".weight_zero_point";
  if (how.has_zeros && !files.find(zeros))
    refuse("has no weight_zero_point beside it, which symmetric = false needs");
  if (files.find(zeros))
    p.zeros = {.words = *files.bytes(find_part(files, zeros, {words_of(p.rows, bits), groups}, {"I32"})),
               .line_stride = 1,
               .word_stride = groups,
               .bits = int(bits)};
  if (const std::string order = base + ".weight_g_idx"; files.find(order))
    p.groups = &find_part(files, order, {p.cols}, {"I32"});
  return std::make_unique<GroupedMatrix>(files, p);
}

}  // namespace weft
