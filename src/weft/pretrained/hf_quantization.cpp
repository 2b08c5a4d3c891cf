// HfQuantization: reading of quantization_config.
#include "weft/pretrained/hf_quantization.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr int64_t kMostGroup = 1 << 20;

[[noreturn]] void refuse(const JsonView& json, std::string_view key, std::string_view value, std::string_view what) {
  throw Error("{}: {}.{} = {} is not supported; {}", json.source(), json.path(), key, value, what);
}

// -1: all inputs, which is 0 here.
int64_t group_of(const JsonView& json) {
  const int64_t group = json.integer_or("group_size", -1, -1, kMostGroup);
  if (group == 0) refuse(json, "group_size", "0", "-1 or a number of inputs is");
  return std::max<int64_t>(group, 0);
}

void check_four_bits(const JsonView& json) {
  const int64_t bits = json.at("bits").integer();
  if (bits != 4) refuse(json, "bits", std::to_string(bits), "only 4 is");
}

HfQuantization parse_gptq(const JsonView& json) {
  check_four_bits(json);
  const std::string format = json.string_or("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2") refuse(json, "checkpoint_format", format, "gptq and gptq_v2 are");
  return {.kind = HfQuantization::Kind::gptq, .group = group_of(json), .zeros_less_one = format == "gptq"};
}

HfQuantization parse_awq(const JsonView& json) {
  check_four_bits(json);
  const std::string version = json.string_or("version", "gemm");
  if (version != "gemm" && version != "GEMM") refuse(json, "version", version, "only gemm is");
  if (!json.boolean_or("zero_point", true)) refuse(json, "zero_point", "false", "only true is");
  return {.kind = HfQuantization::Kind::awq, .group = group_of(json)};
}

void set_blocks(const JsonView& json, const char* key, HfQuantization& q) {
  const JsonView sizes = json.at(key);
  if (!sizes.is_array() || sizes.size() != 2)
    throw Error("{}: {}.{} must be two numbers, of rows and of columns", json.source(), json.path(), key);
  q.block_rows = sizes.at(int64_t(0)).integer(1, kMostGroup),
  q.block_cols = sizes.at(int64_t(1)).integer(1, kMostGroup);
}

HfQuantization parse_fp8(const JsonView& json) {
  HfQuantization q;
  if (const std::string format = json.string_or("fmt", "e4m3"); format != "e4m3")
    refuse(json, "fmt", format, "only e4m3 is");
  if (json.has("weight_block_size")) set_blocks(json, "weight_block_size", q);
  return q;
}

HfQuantization parse_weights(const JsonView& weights) {
  HfQuantization q;
  const int64_t bits = weights.integer_or("num_bits", 8);
  if (bits != 8) refuse(weights, "num_bits", std::to_string(bits), "only 8 is");
  if (!weights.boolean_or("symmetric", true)) refuse(weights, "symmetric", "false", "only true is");
  const std::string strategy = weights.string_or("strategy", "tensor");
  if (strategy == "group") {
    q.block_rows = 1, q.block_cols = weights.at("group_size").integer(1, kMostGroup);
  } else if (strategy == "block") {
    set_blocks(weights, "block_structure", q);
  } else if (strategy != "tensor" && strategy != "channel") {
    refuse(weights, "strategy", strategy, "tensor, channel, group and block are");
  }
  return q;
}

HfQuantization parse_compressed(const JsonView& json) {
  const std::string format = json.string_or("format", "naive-quantized");
  if (format != "float-quantized" && format != "int-quantized" && format != "naive-quantized")
    refuse(json, "format", format, "float-quantized, int-quantized and naive-quantized are");
  if (const std::string sparsity =
          json["sparsity_config"].is_object() ? json["sparsity_config"].string_or("format", "dense") : "dense";
      sparsity != "dense")
    refuse(json, "sparsity_config.format", sparsity, "only dense is");
  const JsonView groups = json.at("config_groups");
  HfQuantization q;
  bool is_first = true;
  for (const std::string& name : groups.keys()) {
    const HfQuantization other = parse_weights(groups.at(name).at("weights"));
    if (!is_first && (other.block_rows != q.block_rows || other.block_cols != q.block_cols))
      refuse(json, "config_groups", name, "groups that share scales otherwise than others are not");
    q = other, is_first = false;
  }
  return q;
}

struct Method {
  std::string_view name;
  HfQuantization (*parse)(const JsonView&);
};
constexpr Method kMethods[] = {{"fp8", parse_fp8},
                               {"fbgemm_fp8", [](const JsonView&) { return HfQuantization{}; }},
                               {"compressed-tensors", parse_compressed},
                               {"gptq", parse_gptq},
                               {"awq", parse_awq}};

}  // namespace

HfQuantization parse_hf_quantization(const JsonView& json) {
  const std::string name = json.string_or("quant_method", "");
  std::vector<std::string_view> known;
  for (const Method& m : kMethods) {
    if (m.name == name) return m.parse(json);
    known.push_back(m.name);
  }
  refuse(json, "quant_method", fmt::format("\"{}\"", name), fmt::format("there are {}", fmt::join(known, ", ")));
}

}  // namespace weft
