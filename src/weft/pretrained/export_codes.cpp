// Export of codes: rows by their largest magnitude, or runs of neighbours; then the words that describe them.
#include "weft/pretrained/export_codes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "weft/base/ceil_div.h"
#include "weft/base/json.h"
#include "weft/kernels/block_layout.h"
#include "weft/kernels/nf4.h"
#include "weft/models/decoder.h"
#include "weft/pretrained/largest_magnitude.h"
#include "weft/pretrained/packed_matrix.h"
#include "weft/tensor/ggml_block_layout.h"

namespace weft {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr int64_t kNeighbours = blocks::Nf4::kSize;

// Of a whole model, those that only products y = x wT read.
std::unordered_set<std::string> multiplied_params(const ModelConfig& config) {
  std::unordered_set<std::string> names;
  Decoder model(config);
  for (const Param* p : model.params())
    if (p->readers == Param::Readers::products) names.insert(p->name);
  return names;
}

bool is_head(const AssembledTensor& t) { return t.parts.front().names->param == "head.weight"; }

// The block of up to Block::kSize values, whose room beyond them is zeros.
template <class Block, class Encode>
Block encode_padded(std::span<const float> values, Encode encode) {
  std::array<float, Block::kSize> padded{};
  std::ranges::copy(values, padded.begin());
  return encode(padded.data());
}

template <class Block>
void encode_rows(const AssembledTensor& t, std::span<const float> values, ThreadTeam& team,
                 FunctionRef<void(Bytes)> write) {
  constexpr int64_t kRowsAtOnce = 16;
  const int64_t rows = t.dims[0], cols = t.dims[1];
  std::vector<std::byte> codes(values.size());
  std::vector<float> scales(static_cast<size_t>(rows));
  team.parallel_for(rows, kRowsAtOnce, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const std::span<const float> of_row = values.subspan(size_t(row * cols), size_t(cols));
      const float largest = largest_magnitude(of_row, t.name);
      for (int64_t col = 0; col < cols; col += Block::kSize) {
        const auto count = size_t(std::min<int64_t>(Block::kSize, cols - col));
        const Block block = encode_padded<Block>(of_row.subspan(size_t(col), count),
                                                 [&](const float* x) { return Block::encode(x, largest); });
        std::memcpy(&codes[size_t(row * cols + col)], block.q.data(), count);
        scales[size_t(row)] = block.scale;
      }
    }
  });
  write(codes);
  write(std::as_bytes(std::span(scales)));
}

// The earlier of two elements in the high half of a byte.
void encode_neighbours(const AssembledTensor& t, std::span<const float> values, ThreadTeam& team,
                       FunctionRef<void(Bytes)> write) {
  constexpr int64_t kBlocksAtOnce = 1024;
  const int64_t size = t.numel(), num_blocks = ceil_div(size, kNeighbours);
  std::vector<uint8_t> codes(static_cast<size_t>(num_blocks * kNeighbours / 2));
  std::vector<float> scales(static_cast<size_t>(num_blocks));
  team.parallel_for(num_blocks, kBlocksAtOnce, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kNeighbours;
      const auto of_block = values.subspan(size_t(first), size_t(std::min(kNeighbours, size - first)));
      largest_magnitude(of_block, t.name);  // for its check
      const auto block = encode_padded<blocks::Nf4>(of_block, blocks::Nf4::encode);
      scales[size_t(b)] = block.scale;
      for (int i = 0; i < blocks::Nf4::kSize; ++i) {
        const int code = blocks::code_at(block.q, i);
        codes[size_t((first + i) / 2)] |= uint8_t(i % 2 == 0 ? code << 4 : code);
      }
    }
  });
  codes.resize(size_t(ceil_div(size, int64_t(2))));
  write(std::as_bytes(std::span(codes)));
  write(std::as_bytes(std::span(scales)));
  write(std::as_bytes(std::span(nf4::kTable)));
}

// Blocks of each row, the earlier of two elements in the low half of a byte, and their scales.
void encode_stack(const AssembledTensor& t, std::span<const float> values, ThreadTeam& team,
                  FunctionRef<void(Bytes)> write) {
  using Block = ggml::Mxfp4;
  constexpr int64_t kBlocksAtOnce = 4096;
  const int64_t num_blocks = t.numel() / Block::kSize;
  std::vector<uint8_t> codes(values.size() / 2), scales(static_cast<size_t>(num_blocks));
  team.parallel_for(num_blocks, kBlocksAtOnce, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      const auto of_block = values.subspan(size_t(b * Block::kSize), size_t(Block::kSize));
      largest_magnitude(of_block, t.name);  // for its check
      const Block block = Block::encode(of_block.data());
      for (int i = 0; i < Block::kSize; i += 2)
        codes[size_t((b * Block::kSize + i) / 2)] =
            uint8_t(blocks::code_at(block.q, i) | blocks::code_at(block.q, i + 1) << 4);
      scales[size_t(b)] = block.scale;
    }
  });
  write(std::as_bytes(std::span(codes)));
  write(std::as_bytes(std::span(scales)));
}

}  // namespace

CodedWeights::CodedWeights(BlockType type, const ModelConfig& config, const std::vector<AssembledTensor>& tensors)
    : type_(type), tensors_(tensors) {
  if (type == BlockType::mxfp4) {
    for (const AssembledTensor& t : tensors) {
      is_coded_.push_back(t.name.ends_with(kStackCodes));
      if (is_coded_.back() && t.dims.back() % ggml::Mxfp4::kSize != 0)
        throw Error("{} has rows of {}, which are no whole blocks of {}", t.name, t.dims.back(), ggml::Mxfp4::kSize);
    }
    return;
  }
  const std::unordered_set<std::string> multiplied = multiplied_params(config);
  bool has_stacks = false, has_transposed = false;
  for (const AssembledTensor& t : tensors) {
    const bool is_multiplied = std::ranges::all_of(
        t.parts, [&](const AssembledTensor::Part& part) { return multiplied.contains(part.names->param); });
    const bool is_matrix = t.dims.size() == 2 && t.name.ends_with(kWeight);
    const bool is_transposed = t.parts.front().names->is_transposed;
    is_coded_.push_back(is_multiplied && is_matrix && !is_transposed && !is_head(t));
    if (is_multiplied && !is_head(t)) has_stacks |= !is_matrix, has_transposed |= is_transposed;
    if (is_matrix && !is_coded_.back()) kept_.push_back(t.name.substr(0, t.name.size() - kWeight.size()));
  }
  if (config.tie_embeddings) kept_.emplace_back("lm_head");  // a module all the same
  if (std::ranges::find(is_coded_, true) == is_coded_.end())
    throw Error("this model's family keeps its weights as no format of codes has them: write a GGUF file instead");
  if (has_stacks) notes_.emplace_back("experts stay floats, since this family keeps all of a layer in one tensor");
  if (has_transposed) notes_.emplace_back("weights that this family keeps as [inputs, outputs] stay floats");
}

std::vector<SafetensorsInfo> CodedWeights::infos_of(size_t tensor) const {
  const AssembledTensor& t = tensors_[tensor];
  const int64_t rows = t.dims[0], cols = t.dims[1];
  if (type_ == BlockType::mxfp4) {
    const std::string base = t.name.substr(0, t.name.size() - kStackCodes.size());
    const int64_t blocks = t.dims[2] / ggml::Mxfp4::kSize;
    return {{t.name, DType::u8, {rows, cols, blocks, ggml::Mxfp4::kSize / 2}},
            {base + std::string(kStackScales), DType::u8, {rows, cols, blocks}}};
  }
  if (type_ != BlockType::nf4)
    return {{t.name, DType::u8, {rows, cols}, type_ == BlockType::fp8 ? "F8_E4M3" : "I8"},
            {t.name + "_scale", DType::f32, {rows, 1}}};
  return {{t.name, DType::u8, {ceil_div(t.numel(), int64_t(2)), 1}},
          {t.name + ".absmax", DType::f32, {ceil_div(t.numel(), kNeighbours)}},
          {t.name + ".quant_map", DType::f32, {int64_t(nf4::kTable.size())}},
          {t.name + ".quant_state.bitsandbytes__nf4", DType::u8, {int64_t(quant_state_of(tensor).size())}}};
}

void CodedWeights::encode(size_t tensor, std::span<const float> values, FunctionRef<void(Bytes)> write) {
  const AssembledTensor& t = tensors_[tensor];
  if (type_ == BlockType::fp8) return encode_rows<blocks::Fp8>(t, values, team_, write);
  if (type_ == BlockType::mxfp4) return encode_stack(t, values, team_, write);
  if (type_ == BlockType::int8) return encode_rows<blocks::Int8>(t, values, team_, write);
  encode_neighbours(t, values, team_, write);
  write(bytes_of(quant_state_of(tensor)));
}

std::string CodedWeights::quant_state_of(size_t tensor) const {
  return to_json_text(
      {{"quant_type", "nf4"}, {"blocksize", kNeighbours}, {"dtype", "bfloat16"}, {"shape", tensors_[tensor].dims}});
}

nlohmann::json CodedWeights::quantization_config() const {
  if (type_ == BlockType::mxfp4)
    return {{"quant_method", "mxfp4"},
            {"modules_to_not_convert",
             {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}};
  if (type_ == BlockType::nf4)
    return {{"quant_method", "bitsandbytes"},
            {"load_in_4bit", true},
            {"load_in_8bit", false},
            {"bnb_4bit_quant_type", "nf4"},
            {"bnb_4bit_use_double_quant", false},
            {"bnb_4bit_compute_dtype", "bfloat16"},
            {"bnb_4bit_quant_storage", "uint8"},
            {"llm_int8_skip_modules", kept_}};
  const bool is_float = type_ == BlockType::fp8;
  const auto ways = [&](const char* strategy, bool is_dynamic) {
    return nlohmann::json{{"num_bits", 8},
                          {"type", is_float ? "float" : "int"},
                          {"symmetric", true},
                          {"strategy", strategy},
                          {"dynamic", is_dynamic}};
  };
  return {{"quant_method", "compressed-tensors"},
          {"format", is_float ? "float-quantized" : "int-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", ways("channel", false)},
              {"input_activations", ways("token", true)}}}}},
          {"ignore", kept_}};
}

}  // namespace weft
