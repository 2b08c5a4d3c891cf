// Table matrices: codes of 4 bits, each an entry of a table times the scale of a block of neighbours, whatever rows
// these are in; scales may be codes themselves. Source: Dettmers et al., "QLoRA", 2023, as bitsandbytes stores it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "weft/base/ceil_div.h"
#include "weft/base/json.h"
#include "weft/kernels/block_layout.h"
#include "weft/kernels/nf4.h"
#include "weft/pretrained/packed_matrix.h"

namespace weft {
namespace {

// What stands beside a weight as JSON.
struct TableState {
  int64_t rows = 0, cols = 0;
  int64_t block = 0;   // elements that share a scale
  int64_t nested = 0;  // scales that share one of their own; 0: scales are floats
  float offset = 0;    // of scales that are codes
};

class TableMatrix final : public PackedMatrix {
 public:
  struct Parts {
    Bytes codes;   // the earlier of two elements in the high half
    Bytes scales;  // of blocks: F32, or codes of 8 bits
    std::array<float, 16> table;
    std::array<float, 256> nested_table;
    std::vector<float> nested_scales;
  };

  TableMatrix(std::string name, const TableState& state, Parts parts)
      : PackedMatrix(state.rows, state.cols), name_(std::move(name)), state_(state), p_(std::move(parts)) {}

  void read(int64_t row, int64_t first, std::span<float> out) const override {
    int64_t block = -1;
    float its_scale = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t at = row * cols() + first + int64_t(i);
      if (at / state_.block != block) block = at / state_.block, its_scale = scale(block);
      out[i] = its_scale * p_.table[size_t(code(at))];
    }
  }

  std::optional<BlockType> block_type() const override {
    constexpr int64_t kSize = blocks::Nf4::kSize;
    const bool is_nf4 = p_.table == nf4::kTable && cols() % kSize == 0 && state_.block % kSize == 0;
    return is_nf4 ? std::optional(BlockType::nf4) : std::nullopt;
  }

  void copy_blocks(int64_t row, int64_t first, std::span<std::byte> out) const override {
    using Block = blocks::Nf4;
    for (size_t at = 0; at < out.size(); at += sizeof(Block), ++first) {
      const int64_t begin = row * cols() + first * Block::kSize;
      Block block{.scale = 0, .q = {}};
      if (first * Block::kSize < cols()) {
        block.scale = scale(begin / state_.block);
        for (int i = 0; i < Block::kSize; ++i)
          block.q[size_t(i / 32 * 16 + i % 16)] |= uint8_t(code(begin + i) << (i % 32 < 16 ? 0 : 4));
      }
      std::memcpy(out.data() + at, &block, sizeof(Block));
    }
  }

 private:
  int code(int64_t at) const {
    const auto both = std::to_integer<int>(p_.codes[size_t(at / 2)]);
    return at % 2 == 0 ? both >> 4 : both & 15;
  }
  float scale(int64_t block) const {
    const std::byte* const from = p_.scales.data();
    const float scale = state_.nested == 0 ? std::bit_cast<float>(load_le<uint32_t>(from + 4 * block))
                                           : p_.nested_table[std::to_integer<size_t>(from[block])] *
                                                     p_.nested_scales[size_t(block / state_.nested)] +
                                                 state_.offset;
    if (!std::isfinite(scale)) throw Error("{} has a scale that is no finite number", name_);
    return scale;
  }

  std::string name_;
  TableState state_;
  Parts p_;
};

// Of a tensor that must be there, with so many elements of this dtype.
Bytes bytes_beside(const StoredTensors& files, const std::string& name, int64_t numel, std::string_view dtype_name) {
  const StoredInfo* const info = files.find(name);
  if (!info) throw Error("{} has no tensor {}, which codes of bitsandbytes need", files.path(), name);
  if (info->numel() != numel || info->dtype_name != dtype_name)
    throw Error("{}: tensor {} is not {} elements of {}", files.path(), info->to_text(), numel, dtype_name);
  return *files.bytes(*info);
}

template <class Floats>
void read_floats_beside(const StoredTensors& files, const std::string& name, Floats& out) {
  bytes_beside(files, name, int64_t(out.size()), "F32");
  files.read(*files.find(name), 0, 1, out);
  if (!std::ranges::all_of(out, [](float x) { return std::isfinite(x); }))
    throw Error("{}: tensor {} has an element that is no finite number", files.path(), name);
}

TableState read_state(const StoredTensors& files, const std::string& weight) {
  constexpr size_t kMostBytes = 1 << 16;
  constexpr int64_t kMostOfSide = int64_t(1) << 31, kMostOfBlock = 1 << 16;
  const StoredInfo* info = files.find(weight + ".quant_state.bitsandbytes__nf4");
  if (!info) info = files.find(weight + ".quant_state.bitsandbytes__fp4");
  if (!info)
    throw Error("{} has neither quant_state.bitsandbytes__nf4 nor quant_state.bitsandbytes__fp4 beside {}",
                files.path(), weight);
  const Bytes bytes = *files.bytes(*info);
  if (bytes.size() > kMostBytes) throw Error("{}: tensor {} is too large", files.path(), info->to_text());
  const JsonDocument document = JsonDocument::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                                    files.path() + ": " + info->name);
  const JsonView json = document.root();
  const JsonView shape = json.at("shape");
  if (!shape.is_array() || shape.size() != 2) throw Error("{}: shape must be two numbers", json.source());
  TableState state{.rows = shape.at(int64_t(0)).integer(1, kMostOfSide),
                   .cols = shape.at(int64_t(1)).integer(1, kMostOfSide),
                   .block = json.at("blocksize").integer(1, kMostOfBlock)};
  if (!json.has("nested_blocksize")) return state;
  state.nested = json.at("nested_blocksize").integer(1, kMostOfBlock);
  state.offset = float(json.at("nested_offset").number());
  return state;
}

}  // namespace

std::unique_ptr<PackedMatrix> table_matrix(const StoredTensors& files, const std::string& base) {
  const std::string weight = base + ".weight";
  const StoredInfo& codes = *files.find(weight);
  const std::string name = fmt::format("{}: tensor {}", files.path(), codes.to_text());
  if (!files.bytes(codes)) throw Error("{} is of codes, which weft reads from safetensors alone", name);
  const TableState state = read_state(files, weight);
  const int64_t numel = state.rows * state.cols, num_blocks = ceil_div(numel, state.block);
  TableMatrix::Parts parts{.codes = *files.bytes(codes),
                           .scales = {},
                           .table = {},
                           .nested_table = {},
                           .nested_scales = std::vector<float>()};
  // Their dtype is any that FSDP shards, and says nothing.
  if (int64_t(parts.codes.size()) != ceil_div(numel, int64_t(2)))
    throw Error("{} has not the {} bytes of a matrix [{}, {}] of 4 bits", name, ceil_div(numel, int64_t(2)),
                state.rows, state.cols);
  parts.scales = bytes_beside(files, weight + ".absmax", num_blocks, state.nested == 0 ? "F32" : "U8");
  read_floats_beside(files, weight + ".quant_map", parts.table);
  if (state.nested > 0) {
    read_floats_beside(files, weight + ".nested_quant_map", parts.nested_table);
    parts.nested_scales.resize(size_t(ceil_div(num_blocks, state.nested)));
    read_floats_beside(files, weight + ".nested_absmax", parts.nested_scales);
  }
  return std::make_unique<TableMatrix>(name, state, std::move(parts));
}

}  // namespace weft
