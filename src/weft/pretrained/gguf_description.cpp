// GgufDescription: values of a file, and single keys.
#include "weft/pretrained/gguf_description.h"

#include "weft/base/bytes.h"
#include "weft/formats/ggml_blocks.h"
#include "weft/pretrained/param_names.h"

namespace weft {
namespace {

constexpr int64_t kMostOfAnything = int64_t(1) << 24;
constexpr int64_t kMostFactors = int64_t(1) << 16;

// Nothing of a kind that no key below needs.
std::optional<GgufDescription::Value> value_of(const GgufValue& value) {
  switch (value.type()) {
    case GgufType::boolean: return value.boolean();
    case GgufType::string: return std::string(value.string());
    case GgufType::f32:
    case GgufType::f64: return value.number();
    case GgufType::array:
      if (value.is_array_of(GgufType::boolean)) return value.booleans();
      if (value.is_array_of(GgufType::i32) || value.is_array_of(GgufType::u32)) return value.integers();
      return {};
    default: return value.integer();
  }
}

std::vector<float> factors_of(const GgufFile& file, const GgufTensor& tensor) {
  if (tensor.dims.size() != 1 || tensor.numel() > kMostFactors || tensor.type != GgmlType::f32)
    throw Error("{}: tensor {} is not a list of at most {} F32 numbers", file.path(), tensor.name, kMostFactors);
  std::vector<float> factors(size_t(tensor.numel()));
  dequantize(tensor.type, file.bytes(tensor), factors);
  return factors;
}

}  // namespace

GgufDescription describe(const GgufFile& file) {
  GgufDescription d{.source = file.path(), .architecture = std::string(file.at("general.architecture").string())};
  const std::string prefix = d.architecture + ".";
  for (const std::string& key : file.keys())
    if (key.starts_with(prefix))
      if (auto value = value_of(file.at(key))) d.keys.emplace(key.substr(prefix.size()), std::move(*value));
  for (const char* name : {"rope_freqs", "rope_factors_long", "rope_factors_short"})
    if (const GgufTensor* tensor = file.find_tensor(std::string(name) + ".weight"))
      d.factors.emplace(name, factors_of(file, *tensor));
  const auto has = [&](const char* name) { return file.find_tensor(name) != nullptr; };
  d.has_head = has("output.weight");
  d.has_qkv_bias = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias");
  d.has_output_bias = has("blk.0.attn_output.bias");
  d.has_head_norm = has("blk.0.attn_q_norm.weight");
  d.has_mlp_bias = has("blk.0.ffn_down.bias");
  d.has_head_bias = has("output.bias");
  const auto count = [&](const char* pattern) {
    return std::ranges::count_if(file.tensors(), [&](const auto& t) { return matches_pattern(t.name, pattern); });
  };
  d.has_router_bias = count("blk.#.exp_probs_b.bias") > 0;
  d.lacks_values = count("blk.#.attn_v.weight") < count("blk.#.attn_k.weight");
  d.has_state_norm = has("blk.0.ssm_norm.weight");
  d.has_layer_scale = count("blk.#.layer_output_scale.weight") > 0;
  if (const GgufTensor* embedding = file.find_tensor("token_embd.weight")) {
    if (embedding->dims.size() != 2)
      throw Error("{}: token_embd.weight has {} dims, not 2", file.path(), embedding->dims.size());
    d.vocab = embedding->dims[1];
  }
  return d;
}

void add_keys(GgufMetadata& metadata, const GgufDescription& d) {
  metadata.set_string("general.architecture", d.architecture);
  for (const auto& [name, value] : d.keys) {
    const std::string key = d.architecture + "." + name;
    if (const auto* flag = std::get_if<bool>(&value)) metadata.set<bool>(key, *flag);
    if (const auto* size = std::get_if<int64_t>(&value)) metadata.set<uint32_t>(key, uint32_t(*size));
    if (const auto* number = std::get_if<double>(&value)) metadata.set<float>(key, float(*number));
    if (const auto* text = std::get_if<std::string>(&value)) metadata.set_string(key, *text);
    if (const auto* sizes = std::get_if<std::vector<int64_t>>(&value))
      metadata.set_array<int32_t>(key, std::vector<int32_t>(sizes->begin(), sizes->end()));
    if (const auto* flags = std::get_if<std::vector<bool>>(&value)) {
      const auto bytes = std::make_unique<bool[]>(flags->size());
      std::copy(flags->begin(), flags->end(), bytes.get());
      metadata.set_array<bool>(key, std::span<const bool>(bytes.get(), flags->size()));
    }
  }
}

const GgufDescription::Value* GgufFields::find(const char* key) const {
  const auto found = from_->keys.find(key);
  return found == from_->keys.end() ? nullptr : &found->second;
}

void GgufFields::refuse(const char* key, std::string_view what) const {
  throw Error("{}: key '{}.{}': {}", from_->source, from_->architecture, key, what);
}

void GgufFields::refuse_missing(const char* key) const {
  throw Error("{} has no key '{}.{}'", from_->source, from_->architecture, key);
}

int64_t GgufFields::size_at(const char* key, const GgufDescription::Value& value) const {
  const auto* size = std::get_if<int64_t>(&value);
  if (!size || *size < 0 || *size > kMostOfAnything)
    refuse(key, fmt::format("it is no whole number from 0 to {}", kMostOfAnything));
  return *size;
}

void GgufFields::size(const char* key, int64_t& value) {
  if (!is_reading()) return set(key, value);
  const auto* found = find(key);
  if (!found) refuse_missing(key);
  value = size_at(key, *found);
}

void GgufFields::size(const char* key, int64_t& value, int64_t otherwise) {
  if (!is_reading()) return set(key, value);
  const auto* found = find(key);
  value = found ? size_at(key, *found) : otherwise;
}

double GgufFields::number_at(const char* key, double otherwise) const {
  const auto* found = find(key);
  if (!found) return otherwise;
  if (const auto* size = std::get_if<int64_t>(found)) return double(*size);
  const auto* number = std::get_if<double>(found);
  if (!number || !(std::abs(*number) <= 1e12)) refuse(key, "it is no number below 1e12");
  return *number;
}

void GgufFields::number(const char* key, float& value) {
  if (is_reading() && !find(key)) refuse_missing(key);
  number(key, value, 0);
}

void GgufFields::number(const char* key, double& value, double otherwise) {
  if (!is_reading()) return set(key, value);
  value = number_at(key, otherwise);
}

void GgufFields::number(const char* key, float& value, double otherwise) {
  if (!is_reading()) return set(key, double(value));
  value = float(number_at(key, otherwise));
}

void GgufFields::flag(const char* key, bool& value, bool otherwise) {
  if (!is_reading()) return set(key, value);
  const auto* found = find(key);
  if (found && !std::holds_alternative<bool>(*found)) refuse(key, "it is neither true nor false");
  value = found ? std::get<bool>(*found) : otherwise;
}

void GgufFields::text(const char* key, std::string& value, const std::string& otherwise) {
  if (!is_reading()) return set(key, value);
  const auto* found = find(key);
  if (found && !std::holds_alternative<std::string>(*found)) refuse(key, "it is no text");
  value = found ? std::get<std::string>(*found) : otherwise;
}

const std::vector<bool>* GgufFields::flags(const char* key) const {
  const auto* found = find(key);
  return found ? std::get_if<std::vector<bool>>(found) : nullptr;
}

}  // namespace weft
