// HfFamily: finding a config.json's family and reading it.
#include "weft/pretrained/hf_family.h"

#include <map>

#include "weft/base/file.h"
#include "weft/base/nearest.h"
#include "weft/models/decoder.h"
#include "weft/models/model_fields.h"
#include "weft/pretrained/families/families.h"
#include "weft/pretrained/python_json.h"
#include "weft/pretrained/score_rule.h"
#include "weft/pretrained/text_part.h"

namespace weft {
namespace {

std::string architecture_of(const JsonView& json) {
  const bool has_one = json.has("architectures") && json.at("architectures").size() > 0;
  return has_one ? json.at("architectures").at(0).string() : std::string();
}

const HfFamily& family_of(const JsonView& json, const std::string& source) {
  const std::string type = json.string_or("model_type", "");
  const std::string architecture = architecture_of(json);
  if (type.empty() && architecture.empty())
    throw Error("{}: neither model_type nor architectures says which model it is: write model_type", source);
  std::vector<std::string> known;
  for (const HfFamily& f : hf_families()) {
    if (type.empty() ? f.architecture == architecture : f.model_type == type) return f;
    known.emplace_back(type.empty() ? f.architecture : f.model_type);
  }
  if (!type.empty())
    for (const std::string_view whole : text_part_types()) known.emplace_back(whole);
  const std::string& name = type.empty() ? architecture : type;
  const std::string nearest_name = nearest(name, known);
  throw Error("{}: {} models are not known{}; there are {}", source, name,
              nearest_name.empty() ? "" : fmt::format(" (the nearest is {})", nearest_name), fmt::join(known, ", "));
}

// Of weft's names of fields those that config.json has under other names.
class KeysOfFile {
 public:
  KeysOfFile(const HfFields& fields, const ModelConfig& model) : fields_(fields) {
    find("rope_scaling", &model.rope_scaling.kind);  // whose choice has no place of its own
  }
  void number(const char* key, const auto& value) { find(key, &value); }
  void flag(const char* key, const bool& value) { find(key, &value); }
  void choice(const char*, std::span<const std::string_view>, int) {}
  void list(const char* key, const std::vector<double>& values) { find(key, &values); }
  void begin_group(const char*, bool) {}
  void end_group() {}
  // A message of complete(), which says "model.KEY" as recipes do, about the file.
  std::string told(std::string_view message) const {
    constexpr std::string_view kModel = "model.";
    std::string text;
    while (!message.empty()) {
      const size_t at = std::min(message.find(kModel), message.size());
      text += message.substr(0, at);
      message.remove_prefix(at);
      if (message.empty()) break;
      const size_t end =
          std::min(message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", kModel.size()), message.size());
      const auto found = keys_.find(message.substr(kModel.size(), end - kModel.size()));
      text += found == keys_.end() ? message.substr(0, end) : std::string_view(found->second);
      message.remove_prefix(end);
    }
    return text;
  }

 private:
  void find(const char* key, const void* value) {
    if (const char* const in_file = fields_.key_of(value)) keys_.emplace(key, in_file);
  }
  const HfFields& fields_;
  std::map<std::string, std::string, std::less<>> keys_;
};

// What any family may say, beside those with a key of their own.
void bidirectional_field(HfFields& f, ModelConfig& c) {
  bool is_causal = true;
  f.flag("is_causal", is_causal, true);
  c.bidirectional = !is_causal;
  if (c.bidirectional && c.window > 0)
    f.refuse("is_causal", "of models with local layers it must be true: what these see to both sides is not known");
}

HfConfig parse_decoder(const JsonView& json) {
  const std::string source = json.source();
  const HfFamily& family = family_of(json, source);
  HfConfig config{&family, family_defaults(std::string(family.family))};
  HfFields fields(json);
  if (json.has("quantization_config")) config.quantization = parse_hf_quantization(json["quantization_config"]);
  family.fields(fields, config.model);
  if (!config.model.bidirectional) bidirectional_field(fields, config.model);
  if (scores_texts(json)) config.model.labels = num_labels_of(json);
  if (config.has_stacks() && !family.names_of_stacks)
    throw Error("{}: quantization_config.quant_method = \"mxfp4\" is not supported of {} models", source,
                family.family);
  try {
    complete(config.model);
  } catch (const UsageError& e) {
    KeysOfFile keys(fields, config.model);
    visit_model_fields(keys, config.model);
    throw Error("{}: {}", source, keys.told(e.what()));
  }
  return config;
}

}  // namespace

const std::vector<HfFamily>& hf_families() {
  static const std::vector<HfFamily> all = [] {
    std::vector<HfFamily> families;
    for (const auto& some :
         {hf_llama_families(),      hf_qwen_families(),      hf_olmo_families(),     hf_gemma_families(),
          hf_deepseek_families(),   hf_gpt2_families(),      hf_neox_families(),     hf_falcon_families(),
          hf_falcon_h1_families(),  hf_afmoe_families(),     hf_bamba_families(),    hf_olmo_hybrid_families(),
          hf_mimo_families(),       hf_cohere_families(),    hf_exaone_families(),   hf_glm_families(),
          hf_gpt_oss_families(),    hf_llama4_families(),    hf_granite_families(),  hf_hunyuan_families(),
          hf_kimi_families(),       hf_lfm2_families(),      hf_minimax_families(),  hf_nemotron_families(),
          hf_nemotron_h_families(), hf_opt_families(),       hf_seed_oss_families(), hf_smollm_families(),
          hf_stablelm_families(),   hf_starcoder_families(), hf_helium_families(),   hf_kolibri_families(),
          hf_minicpm_families(),    hf_apertus_families(),   hf_gptj_families(),     hf_nanochat_families(),
          hf_eurobert_families()})
      families.insert(families.end(), some.begin(), some.end());
    return families;
  }();
  return all;
}

JsonDocument read_config_json(const std::string& folder) {
  constexpr uint64_t kMostBytes = uint64_t(16) << 20;
  const std::string file = join_path(folder, "config.json");
  return JsonDocument::parse(without_python_numbers(read_file(file, kMostBytes)), file);
}

HfConfig parse_hf_config(std::string_view text, const std::string& source) {
  const JsonDocument document = JsonDocument::parse(without_python_numbers(text), source);
  return parse_hf_config(document.root());
}

HfConfig parse_hf_config(const JsonView& json) {
  const std::optional<JsonDocument> part = text_part_config(json);
  HfConfig config = parse_decoder(part ? part->root() : json);
  config.is_part = part.has_value();
  return config;
}

std::string mtp_name(const HfFamily& family, std::string_view name, int64_t layers) {
  constexpr std::string_view kLayer = "model.layers.#";
  const std::string whole = name.starts_with(kLayer)
                                ? fmt::format("{}{}", family.mtp_layer, name.substr(kLayer.size()))
                                : std::string(name);
  const size_t mark = whole.find('#');
  return mark == std::string::npos ? whole
                                   : fmt::format("{}{}{}", whole.substr(0, mark), layers, whole.substr(mark + 1));
}

std::vector<ParamNames> names_of(const HfFamily& family, const ModelConfig& config, bool has_stacks) {
  if (has_stacks && !family.names_of_stacks)
    throw Error("{} models have no form in MXFP4 as a Hugging Face folder: write a GGUF file instead", family.family);
  const std::vector<NameRow>& rows = has_stacks ? family.names_of_stacks(config) : family.names(config);
  if (config.scores_texts()) {
    constexpr NameRow kScore[] = {{kScoreName, kScoreName}};
    return names_of(config, joined({rows, kScore}));
  }
  if (config.mtp_layers == 0) return names_of(config, rows);
  std::vector<ParamNames> all = names_of(config, joined({family.mtp, rows}));
  const std::string behind = fmt::format("model.layers.{}.", config.layers);
  for (ParamNames& names : all)
    for (std::string& stored : names.stored)
      if (stored.starts_with(behind))
        stored = mtp_name(family, "model.layers.#." + stored.substr(behind.size()), config.layers);
  return all;
}

}  // namespace weft
