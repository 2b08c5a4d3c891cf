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

int64_t bits_of(const JsonView& json, std::initializer_list<int64_t> known) {
  const int64_t bits = json.at("bits").integer();
  if (std::ranges::find(known, bits) == known.end())
    refuse(json, "bits", std::to_string(bits), fmt::format("{} can be read", fmt::join(known, ", ")));
  return bits;
}

HfQuantization parse_gptq(const JsonView& json) {
  const std::string format = json.string_or("checkpoint_format", "gptq");
  const bool is_planar = format == "gptq_p";
  if (format != "gptq" && format != "gptq_v2" && !is_planar)
    refuse(json, "checkpoint_format", format, "gptq, gptq_v2 and gptq_p are");
  if (const std::string words = json.string_or("pack_dtype", "int32"); words != "int32")
    refuse(json, "pack_dtype", words, "only int32 is");
  return {.kind = HfQuantization::Kind::gptq,
          .bits = is_planar ? bits_of(json, {2, 3, 4, 5, 6, 7, 8}) : bits_of(json, {2, 3, 4, 8}),
          .group = group_of(json),
          .varies = json["dynamic"].is_object() && json["dynamic"].size() > 0,
          .zeros_less_one = format == "gptq",
          .is_planar = is_planar};
}

HfQuantization parse_awq(const JsonView& json) {
  const std::string version = json.string_or("version", json.string_or("format", "gemm"));
  const bool is_gemv = version == "gemv" || version == "GEMV";
  if (!is_gemv && version != "gemm" && version != "GEMM") refuse(json, "version", version, "gemm and gemv are");
  if (!json.boolean_or("zero_point", true)) refuse(json, "zero_point", "false", "only true is");
  return {.kind = HfQuantization::Kind::awq,
          .bits = bits_of(json, {4}),
          .group = group_of(json),
          .has_lines_of_outputs = is_gemv};
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
  if (const std::string format = json.string_or("fmt", "e4m3"); format != "e4m3" && format != "float8_e4m3fn")
    refuse(json, "fmt", format, "only e4m3 is");
  if (json.has("weight_block_size")) set_blocks(json, "weight_block_size", q);
  return q;
}

// Formats of compressed-tensors.
constexpr std::string_view kInWords = "pack-quantized", kIntegers = "int-quantized", kMixed = "mixed-precision";
constexpr std::string_view kNvFloat4 = "nvfp4-pack-quantized", kMxFloat4 = "mxfp4-pack-quantized";
constexpr std::string_view kCodesOfEight[] = {"float-quantized", "naive-quantized", "mxfp8-quantized"};

HfQuantization parse_weights(const JsonView& weights, std::string_view format) {
  HfQuantization q;
  const bool is_in_words = format == kInWords;
  const int64_t bits = weights.integer_or("num_bits", 8);
  // Integers of fewer bits lie in bytes all the same.
  const int64_t least = is_in_words ? 2 : format == kIntegers ? 1 : 8;
  if (bits < least || bits > 8)
    refuse(weights, "num_bits", std::to_string(bits),
           least == 8 ? std::string("only 8 is") : fmt::format("{} to 8 are", least));
  q.bits = bits;
  q.has_zeros = !weights.boolean_or("symmetric", true);
  const std::string strategy = weights.string_or("strategy", "tensor");
  if (strategy == "group") {
    q.group = weights.at("group_size").integer(1, kMostGroup);
    if (!is_in_words) q.block_rows = 1, q.block_cols = q.group;
  } else if (strategy == "block" && !is_in_words) {
    set_blocks(weights, "block_structure", q);
  } else if (strategy != "tensor" && strategy != "channel") {
    refuse(weights, "strategy", strategy,
           is_in_words ? "tensor, channel and group are" : "tensor, channel, group and block are");
  }
  return q;
}

bool is_float4(std::string_view format) { return format == kNvFloat4 || format == kMxFloat4; }

// Of codes that are floats of 4 bits only one way is defined.
void check_float4(const JsonView& weights, std::string_view format) {
  const int64_t group = format == kNvFloat4 ? 16 : 32;
  if (const int64_t bits = weights.integer_or("num_bits", 4); bits != 4)
    refuse(weights, "num_bits", std::to_string(bits), "only 4 is");
  if (const std::string type = weights.string_or("type", "float"); type != "float")
    refuse(weights, "type", type, "only float is");
  if (!weights.boolean_or("symmetric", true)) refuse(weights, "symmetric", "false", "only true is");
  if (const int64_t its = weights.integer_or("group_size", group); its != group)
    refuse(weights, "group_size", std::to_string(its), fmt::format("only {} is", group));
}

void check_format(const JsonView& json, std::string_view format) {
  if (format == kInWords || format == kIntegers || is_float4(format) ||
      std::ranges::find(kCodesOfEight, format) != std::end(kCodesOfEight))
    return;
  refuse(json, "format", format,
         fmt::format("{}, {}, {}, {}, {} and {} are", fmt::join(kCodesOfEight, ", "), kIntegers, kInWords, kNvFloat4,
                     kMxFloat4, kMixed));
}

// Where weights are turned the model stays what it is; weft turns no activations.
void refuse_turned_activations(const JsonView& groups) {
  for (const std::string& name : groups.keys()) {
    const JsonView applied = groups.at(name).at("apply");
    for (int64_t i = 0; i < applied.size(); ++i)
      if (const std::string location = applied.at(i).at("location").string(); !location.starts_with("weight_"))
        refuse(applied.at(i), "location", location, "only weight_input and weight_output are");
  }
}

HfQuantization parse_compressed(const JsonView& json) {
  const std::string format = json.string_or("format", "naive-quantized");
  if (format != kMixed) check_format(json, format);
  if (const std::string sparsity =
          json["sparsity_config"].is_object() ? json["sparsity_config"].string_or("format", "dense") : "dense";
      sparsity != "dense")
    refuse(json, "sparsity_config.format", sparsity, "only dense is");
  if (const JsonView turns = json["transform_config"]; turns.is_object() && turns["config_groups"].is_object())
    refuse_turned_activations(turns["config_groups"]);
  const JsonView groups = json.at("config_groups");
  HfQuantization all;
  bool is_first = true, has_blocks = false;
  for (const std::string& name : groups.keys()) {
    const JsonView group = groups.at(name);
    const std::string its = group.string_or("format", format);
    check_format(group, its);
    if (is_float4(its)) {
      check_float4(group.at("weights"), its);
      all.has_float4 = true;
      continue;
    }
    const HfQuantization q = parse_weights(group.at("weights"), its);
    if (!is_first) all.varies |= its == kInWords || q.bits != all.bits || q.group != all.group;
    if (its != kInWords) {
      if (has_blocks && (q.block_rows != all.block_rows || q.block_cols != all.block_cols))
        refuse(json, "config_groups", name, "groups that share scales otherwise than others are not");
      all.block_rows = q.block_rows, all.block_cols = q.block_cols, has_blocks = true;
    }
    all.has_zeros = q.has_zeros && (is_first || all.has_zeros);
    all.bits = q.bits, all.group = q.group, is_first = false;
  }
  return all;
}

// AutoRound writes the formats of others under its own name.
HfQuantization parse_auto_round(const JsonView& json) {
  const std::string packing = json.string_or("packing_format", "");
  const bool is_awq = packing == "auto_round:auto_awq";
  if (!is_awq && packing != "auto_round:auto_gptq")
    refuse(json, "packing_format", packing, "auto_round:auto_gptq and auto_round:auto_awq are");
  HfQuantization q = is_awq ? parse_awq(json) : parse_gptq(json);
  if (is_awq && json["extra_config"].is_object())
    refuse(json, "extra_config", "an object", "only one way for all weights is");
  q.varies |= json["extra_config"].is_object();
  return q;
}

// What ModelOpt calls the ways of a weight; the rest stands beside each.
void add_algorithm(const JsonView& json, HfQuantization& q) {
  constexpr std::string_view kFloat4[] = {"NVFP4", "W4A16_NVFP4", "W4A8_NVFP4_FP8", "W4A8_MXFP4_FP8"};
  constexpr std::string_view kFloat8[] = {"FP8", "FP8_PER_CHANNEL_PER_TOKEN"};
  constexpr std::string_view kMxFloat8 = "MXFP8";
  const std::string name = json.at("quant_algo").string();
  if (std::ranges::find(kFloat4, name) != std::end(kFloat4)) {
    q.has_float4 = true;
  } else if (name == kMxFloat8) {
    q.block_rows = 1, q.block_cols = 32;
  } else if (std::ranges::find(kFloat8, name) == std::end(kFloat8)) {
    refuse(json, "quant_algo", name,
           fmt::format("{}, {}, {} and MIXED_PRECISION of these are", fmt::join(kFloat4, ", "),
                       fmt::join(kFloat8, ", "), kMxFloat8));
  }
}

HfQuantization parse_modelopt(const JsonView& json) {
  // As config.json has it, or as hf_quant_config.json does.
  const JsonView all = json["quantization"].is_object() ? json["quantization"] : json;
  HfQuantization q;
  if (!all.has("quant_algo")) return q;  // of a cache alone
  if (all.at("quant_algo").string() != "MIXED_PRECISION") {
    add_algorithm(all, q);
    return q;
  }
  const JsonView layers = all.at("quantized_layers");
  for (const std::string& name : layers.keys()) add_algorithm(layers.at(name), q);
  return q;
}

HfQuantization parse_bitsandbytes(const JsonView&) {
  return {.kind = HfQuantization::Kind::bitsandbytes};  // the rest stands beside each weight
}

struct Method {
  std::string_view name;
  HfQuantization (*parse)(const JsonView&);
};
constexpr Method kMethods[] = {
    {"fp8", parse_fp8},
    {"fbgemm_fp8", [](const JsonView&) { return HfQuantization{}; }},
    {"compressed-tensors", parse_compressed},
    {"gptq", parse_gptq},
    {"awq", parse_awq},
    {"auto-round", parse_auto_round},
    {"mxfp4", [](const JsonView&) { return HfQuantization{.kind = HfQuantization::Kind::mxfp4}; }},
    {"bitsandbytes", parse_bitsandbytes},
    {"modelopt", parse_modelopt}};

}  // namespace

HfQuantization parse_hf_quantization(const JsonView& json) {
  const JsonView producer = json["producer"];
  const std::string name =
      json.string_or("quant_method", producer.is_object() ? producer.string_or("name", "") : std::string());
  std::vector<std::string_view> known;
  for (const Method& m : kMethods) {
    if (m.name == name) return m.parse(json);
    known.push_back(m.name);
  }
  refuse(json, "quant_method", fmt::format("\"{}\"", name), fmt::format("there are {}", fmt::join(known, ", ")));
}

}  // namespace weft
