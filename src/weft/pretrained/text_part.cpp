// Text part: which keys of config.json describe it, and which tensors are its.
#include "weft/pretrained/text_part.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

namespace weft {
namespace {

// Models of which one part is a decoder: what a text_config that names no kind is, and a config.json without one.
struct WholeType {
  std::string_view model_type, text_type;
};
constexpr WholeType kWholeTypes[] = {{"gemma3", "gemma3_text"},
                                     {"gemma4", "gemma4_text"},
                                     {"gemma4_unified", "gemma4_unified_text"},
                                     {"llama4", "llama4_text"},
                                     {"mistral3", "mistral"},
                                     {"kimi_k25", "kimi_k2"},
                                     {"qwen2_vl", "qwen2_vl_text"},
                                     {"qwen2_5_vl", "qwen2_5_vl_text"},
                                     {"qwen3_vl", "qwen3_vl_text"},
                                     {"qwen3_vl_moe", "qwen3_vl_moe_text"},
                                     {"qwen3_5", "qwen3_5_text"},
                                     {"qwen3_5_moe", "qwen3_5_moe_text"},
                                     {"glm4v", "glm4v_text"},
                                     {"glm4v_moe", "glm4v_moe_text"},
                                     {"internvl", "qwen2"}};

// Kinds of decoders that differ from one of text alone in their name, or in what a file without a key means. Their
// rotary positions are three to a token, in time and on the image: where there is text alone the three are one.
struct TextType {
  std::string_view model_type, same_as, absent;
};
constexpr TextType kTextTypes[] = {
    {"gemma3_text", "gemma3_text", R"({"vocab_size": 262208, "max_position_embeddings": 131072,
                                       "num_attention_heads": 8, "num_key_value_heads": 4})"},
    {"gemma4_text", "gemma4_text", R"({"vocab_size": 262144, "max_position_embeddings": 131072})"},
    {"gemma4_unified_text", "gemma4_text", R"({"vocab_size": 262144, "max_position_embeddings": 262144,
                                               "sliding_window": 1024, "hidden_size_per_layer_input": 0})"},
    {"qwen2_vl_text", "qwen2", "{}"},
    {"qwen2_5_vl_text", "qwen2", "{}"},
    {"qwen3_vl_text", "qwen3", "{}"},
    {"glm4v_text", "glm4", "{}"},
    {"glm4v_moe_text", "glm4_moe", "{}"}};

// Keys of the whole model's config.json that are about the decoder too.
constexpr const char* kOutside[] = {"tie_word_embeddings", "quantization_config"};

// Where a decoder's tensors lie in a model with other parts, and where in one of its own. The first row counts.
struct Place {
  std::string_view inside, alone;
};
constexpr Place kPlaces[] = {
    {"model.language_model.", "model."}, {"language_model.model.", "model."}, {"language_model.", ""}};
constexpr std::string_view kOtherParts[] = {
    "visual.",       "vision_tower.", "vision_model.", "multi_modal_projector.",
    "mm_projector.", "embed_vision.", "embed_audio.",  "audio_tower."};

constexpr std::string_view kModel = "model.";

// Empty: of another part.
std::string name_alone(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::string(name);
  name.remove_prefix(prefix.size());
  for (const auto& [inside, alone] : kPlaces)
    if (name.starts_with(inside)) return fmt::format("{}{}{}", prefix, alone, name.substr(inside.size()));
  const std::string_view part = name.starts_with(kModel) ? name.substr(kModel.size()) : name;
  const bool is_adapter = !prefix.empty();
  if (!is_adapter &&
      std::ranges::any_of(kOtherParts, [&](std::string_view other) { return part.starts_with(other); }))
    return {};
  return fmt::format("{}{}", prefix, name);
}

class TextPartTensors final : public StoredTensors {
 public:
  TextPartTensors(std::unique_ptr<StoredTensors> whole, std::string_view prefix) : whole_(std::move(whole)) {
    std::vector<StoredInfo> all;
    for (const StoredInfo& info : whole_->all()) {
      StoredInfo alone = info;
      alone.name = name_alone(info.name, prefix);
      if (alone.name.empty()) continue;
      if (!inside_.emplace(alone.name, &info).second)
        throw Error("{} has the tensor {} twice, also as {}", path(), alone.name, info.name);
      all.push_back(std::move(alone));
    }
    set_all(std::move(all));
  }
  const std::string& path() const override { return whole_->path(); }
  void read(const StoredInfo& info, int64_t first, int64_t stride, std::span<float> out) const override {
    whole_->read(inside(info), first, stride, out);
  }
  std::optional<StoredBlocks> blocks(const StoredInfo& info) const override { return whole_->blocks(inside(info)); }
  bool is_in_other_blocks(const StoredInfo& info) const override { return whole_->is_in_other_blocks(inside(info)); }
  void copy_blocks(const StoredInfo& info, int64_t row, int64_t first, std::span<std::byte> out) const override {
    whole_->copy_blocks(inside(info), row, first, out);
  }
  std::optional<Bytes> bytes(const StoredInfo& info) const override { return whole_->bytes(inside(info)); }

 private:
  const StoredInfo& inside(const StoredInfo& alone) const { return *inside_.at(alone.name); }

  std::unique_ptr<StoredTensors> whole_;
  std::unordered_map<std::string, const StoredInfo*> inside_;
};

}  // namespace

std::optional<JsonDocument> text_part_config(const JsonView& config) {
  const std::string type = config.string_or("model_type", "");
  const auto* const whole = std::ranges::find(kWholeTypes, type, &WholeType::model_type);
  const bool has_whole = whole != std::end(kWholeTypes), is_inside = has_whole && config.has("text_config");
  const JsonView part = is_inside ? config.at("text_config") : config;
  const std::string text_type = has_whole ? part.string_or("model_type", type) : type;
  const std::string_view own_type = has_whole && text_type == type ? whole->text_type : std::string_view(text_type);
  const auto* const text = std::ranges::find(kTextTypes, own_type, &TextType::model_type);
  const bool is_known = text != std::end(kTextTypes);
  if (!has_whole && (!is_known || text->same_as == type)) return {};
  nlohmann::json alone = part.raw();
  for (const char* key : kOutside)
    if (config.has(key)) alone[key] = config[key].raw();
  alone["model_type"] = is_known ? text->same_as : own_type;
  alone.erase("architectures");
  if (is_known) {
    const nlohmann::json absent = nlohmann::json::parse(text->absent);
    for (const auto& [key, value] : absent.items())
      if (!alone.contains(key)) alone[key] = value;
  }
  return JsonDocument::parse(to_json_text(alone),
                             is_inside ? fmt::format("{}, text_config", config.source()) : config.source());
}

std::vector<std::string_view> text_part_types() {
  std::vector<std::string_view> types;
  for (const WholeType& whole : kWholeTypes) types.push_back(whole.model_type);
  return types;
}

std::string name_inside(std::string_view module) {
  if (!module.starts_with(kModel)) return std::string(module);
  return fmt::format("{}{}", kPlaces[0].inside, module.substr(kModel.size()));
}

std::unique_ptr<StoredTensors> text_part_tensors(std::unique_ptr<StoredTensors> whole, std::string_view prefix) {
  return std::make_unique<TextPartTensors>(std::move(whole), prefix);
}

}  // namespace weft
