// PEFT: names of modules and tensors.
#include "weft/pretrained/peft.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "weft/base/json.h"
#include "weft/formats/safetensors.h"
#include "weft/pretrained/hf_family.h"
#include "weft/pretrained/text_part.h"

namespace weft {
namespace {

constexpr std::string_view kPrefix = "base_model.model.", kWeight = ".weight";

struct Module {
  std::string_view name, target;
};
constexpr Module kModules[] = {{"q_proj", "q"},       {"k_proj", "k"},   {"v_proj", "v"},       {"o_proj", "o"},
                               {"gate_proj", "gate"}, {"up_proj", "up"}, {"down_proj", "down"}, {"w1", "gate"},
                               {"w3", "up"},          {"w2", "down"}};  // of experts

std::string_view target_of(const std::string& module, const std::string& source) {
  const auto* const found = std::ranges::find(kModules, std::string_view(module), &Module::name);
  if (found == std::end(kModules))
    throw Error(
        "{}: there are adapters beside {}, and weft knows them beside q_proj, k_proj, v_proj, o_proj, gate_proj, "
        "up_proj and down_proj",
        source, module);
  return found->target;
}

// The modules that a folder's tensors are beside: where its configuration has a pattern of names, only they tell.
std::set<std::string> modules_of(const std::string& folder) {
  constexpr std::string_view kFactor = ".lora_A.weight";
  std::set<std::string> modules;
  const SafetensorsFile file(join_path(folder, kPeftWeightsName));
  for (const SafetensorsEntry& entry : file.entries()) {
    if (!entry.name.ends_with(kFactor)) continue;
    const std::string module = entry.name.substr(0, entry.name.size() - kFactor.size());
    modules.insert(module.substr(module.rfind('.') + 1));
  }
  return modules;
}

std::vector<std::string> targets_of(const JsonView& modules, const std::string& folder) {
  if (modules.is_string() && modules.string() == "all-linear") return {"all-linear"};
  std::set<std::string> names;
  if (modules.is_string())
    names = modules_of(folder);
  else
    for (int64_t i = 0; i < modules.size(); ++i) names.insert(modules.at(i).string());
  std::vector<std::string> targets;
  for (const std::string& name : names) targets.emplace_back(target_of(name, folder));
  return targets;
}

// Keys that change what an adapter computes, where they are not as weft computes.
void refuse_others(const JsonView& json, const std::string& source) {
  const auto refuse = [&](const char* key) { throw Error("{}: weft cannot do what {} says", source, key); };
  if (json.string_or("peft_type", "LORA") != "LORA") refuse("peft_type");
  if (json.string_or("bias", "none") != "none") refuse("bias");
  for (const char* key :
       {"rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform", "exclude_modules"})
    if (json.has(key)) {
      const JsonView value = json.at(key);
      const bool is_empty = (value.is_array() || value.is_object()) && value.size() == 0;
      if (!is_empty) refuse(key);
    }
}

// "model.layers.0.self_attn.q_proj.weight" -> "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", and
// so for each expert whose projection is a tensor of its own.
std::vector<std::string> peft_names(const ParamNames& base, std::string_view adapter_param) {
  const size_t matrices = base.shape.rank() == 3 ? size_t(base.shape[0]) : 1;
  const bool is_plain = base.stored.size() == matrices && base.rows.keeps_order() && base.rows.total == 0;
  const std::string_view suffix = adapter_param.ends_with(".lora_a")   ? "lora_A.weight"
                                  : adapter_param.ends_with(".lora_b") ? "lora_B.weight"
                                                                       : "lora_magnitude_vector";
  std::vector<std::string> names;
  for (const std::string& stored : base.stored) {
    if (!is_plain || !stored.ends_with(kWeight))
      throw Error("{} is a part of {}, beside which PEFT has no adapter of its own", base.param, stored);
    const std::string_view module = std::string_view(stored).substr(0, stored.size() - kWeight.size());
    names.push_back(fmt::format("{}{}.{}", kPrefix, module, suffix));
  }
  return names;
}

// Of the adapters that `config` says, beside parameters that are stored under the names of `base`.
std::vector<ParamNames> adapter_names(const ModelConfig& config, const std::vector<ParamNames>& base) {
  std::unordered_map<std::string_view, const ParamNames*> weights;
  for (const ParamNames& names : base) weights.emplace(names.param, &names);
  std::vector<ParamNames> all;
  for (ParamNames& names : names_of(config)) {
    if (!is_adapter(names.param)) continue;
    const std::string linear = names.param.substr(0, names.param.rfind('.'));
    names.stored = peft_names(*weights.at(linear + std::string(kWeight)), names.param);
    all.push_back(std::move(names));
  }
  return all;
}

// What Hugging Face calls the parameters of a model without adapters.
std::vector<ParamNames> hf_names(ModelConfig config) {
  config.lora = {};
  for (const HfFamily& family : hf_families())
    if (family.family == config.family) return names_of(family, config);
  throw Error("PEFT has no names for adapters of {} models", config.family);
}

class AdaptedSource final : public ModelSource {
 public:
  AdaptedSource(std::shared_ptr<const ModelSource> base, const std::string& folder, ModelConfig config)
      : ModelSource(base->path(), base->kind(), std::move(config)), base_(std::move(base)) {
    const bool has_peft_names = kind() == SourceKind::hugging_face;
    all_names_ = adapter_names(this->config(), has_peft_names ? base_->names() : hf_names(this->config()));
    bind(text_part_tensors(open_safetensors(join_path(folder, kPeftWeightsName)), kPrefix), all_names_);
    all_names_.insert(all_names_.begin(), base_->names().begin(), base_->names().end());
  }
  const std::vector<ParamNames>& names() const override { return all_names_; }
  int64_t step() const override { return base_->step(); }
  std::vector<int32_t> end_tokens() const override { return base_->end_tokens(); }
  SamplingDefaults sampling_defaults() const override { return base_->sampling_defaults(); }
  std::optional<DType> dtype_of(const std::string& param) const override {
    return is_adapter(param) ? ModelSource::dtype_of(param) : base_->dtype_of(param);
  }
  std::unique_ptr<Tokenizer> tokenizer() const override { return base_->tokenizer(); }
  std::optional<RowsOfBlocks> blocks_of(const std::string& param) const override {
    return is_adapter(param) ? std::nullopt : base_->blocks_of(param);
  }
  std::optional<StoredValues> values_of(const std::string& param) const override {
    return is_adapter(param) ? ModelSource::values_of(param) : base_->values_of(param);
  }
  std::optional<std::string> chat_template() const override { return base_->chat_template(); }
  void read(const std::string& param, int64_t first, std::span<float> out) const override {
    is_adapter(param) ? ModelSource::read(param, first, out) : base_->read(param, first, out);
  }

 private:
  std::shared_ptr<const ModelSource> base_;
  std::vector<ParamNames> all_names_;
};

// Whether what the adapters are for is a model that is here and has other parts beside its decoder.
bool has_other_parts(const std::string& base) {
  return is_hugging_face_folder(base) && parse_hf_config(read_config_json(base).root()).is_part;
}

// Of adapters beside a decoder, the names beside a part of another model.
void move_inside(std::vector<ParamNames>& adapters) {
  for (ParamNames& names : adapters)
    for (std::string& stored : names.stored)
      stored = fmt::format("{}{}", kPrefix, name_inside(std::string_view(stored).substr(kPrefix.size())));
}

std::string config_text(const LoraConfig& lora, const std::vector<ParamNames>& adapters, const std::string& base) {
  std::set<std::string> modules;
  for (const ParamNames& names : adapters) {
    const std::string module = names.stored[0].substr(0, names.stored[0].rfind(".lora_"));
    modules.insert(module.substr(module.rfind('.') + 1));
  }
  return to_json_text({{"peft_type", "LORA"},
                       {"task_type", "CAUSAL_LM"},
                       {"base_model_name_or_path", base},
                       {"r", lora.rank},
                       {"lora_alpha", lora.alpha},
                       {"lora_dropout", lora.dropout},
                       {"target_modules", modules},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"init_lora_weights", true},
                       {"inference_mode", true},
                       {"modules_to_save", nullptr},
                       {"use_dora", lora.is_dora},
                       {"use_rslora", false}},
                      2);
}

}  // namespace

LoraConfig read_peft_config(const std::string& folder) {
  constexpr uint64_t kMostBytes = uint64_t(16) << 20;
  const std::string source = join_path(folder, kPeftConfigName);
  if (!exists(FileSystem::real(), source))
    throw Error("{} has no {}: name a folder that PEFT wrote", folder, kPeftConfigName);
  const JsonDocument document = JsonDocument::parse(read_file(source, kMostBytes), source);
  const JsonView json = document.root();
  refuse_others(json, source);
  LoraConfig lora{.rank = json.at("r").integer(1, kMostLoraRank),
                  .alpha = float(json.number_or("lora_alpha", 8)),
                  .dropout = float(json.number_or("lora_dropout", 0)),
                  .targets = lora_targets(targets_of(json.at("target_modules"), folder)),
                  .is_dora = json.boolean_or("use_dora", false)};
  // There the scale is alpha / sqrt(r).
  if (json.boolean_or("use_rslora", false)) lora.alpha *= std::sqrt(float(lora.rank));
  return lora;
}

std::unique_ptr<ModelSource> open_adapted(std::shared_ptr<const ModelSource> base, const std::string& folder) {
  if (base->config().lora.rank > 0)
    throw Error("{} has adapters already, and {} would be a second one beside them", base->path(), folder);
  ModelConfig config = base->config();
  config.lora = read_peft_config(folder);
  try {
    complete(config);
  } catch (const UsageError& e) {
    throw Error("{}: {}", folder, e.what());
  }
  return std::make_unique<AdaptedSource>(std::move(base), folder, std::move(config));
}

std::unique_ptr<LoraSet> load_lora_set(Context& context, const ModelSource& source, Decoder& model, DType dtype,
                                       const std::string& folder) {
  const std::shared_ptr<const ModelSource> base(std::shared_ptr<const void>(), &source);  // which outlives this
  const std::unique_ptr<ModelSource> adapted = open_adapted(base, folder);
  const LoraConfig& lora = adapted->config().lora;
  if (lora.is_dora)
    throw Error(
        "{}: an adapter with lengths of rows (use_dora) cannot stand beside others: merge it with weft convert",
        folder);
  std::set<std::string_view> factors;
  for (const ParamNames& names : adapted->names()) factors.insert(names.param);
  auto set = std::make_unique<LoraSet>();
  for (const Param* weight : model.params()) {
    const std::string layer = weight->name.substr(0, weight->name.rfind('.'));
    if (!weight->name.ends_with(kWeight) || !factors.contains(layer + ".lora_a")) continue;
    LoraSet::Factors& f = set->add(*weight, layer, lora.rank, lora.scale());
    for (Param* factor : {&f.a, &f.b}) {
      factor->value = context.empty(dtype, factor->shape);
      load_value(context, *adapted, *factor);
      factor->value_changed();
    }
  }
  return set;
}

void write_peft(const ModelSource& model, const std::string& base, const std::string& folder, FileSystem& fs) {
  const LoraConfig& lora = model.config().lora;
  if (lora.rank == 0) throw Error("{} has no adapters", model.path());
  std::vector<ParamNames> adapters = adapter_names(model.config(), hf_names(model.config()));
  if (has_other_parts(base)) move_inside(adapters);
  std::vector<SafetensorsInfo> infos;
  for (const ParamNames& names : adapters) {
    const bool is_stack = names.shape.rank() == 3;  // of experts
    const Shape shape = is_stack ? Shape{names.shape[1], names.shape[2]} : names.shape;
    for (const std::string& stored : names.stored) infos.push_back({stored, DType::f32, shape});
  }
  make_folders(fs, folder);
  SafetensorsWriter writer(fs, join_path(folder, kPeftWeightsName), infos, {{"format", "pt"}});
  std::vector<float> values;
  for (const ParamNames& names : adapters) {
    values.resize(size_t(names.shape.numel()));
    model.read(names.param, 0, values);
    writer.write(std::as_bytes(std::span(values)));
  }
  writer.finish();
  write_file_atomically(fs, join_path(folder, kPeftConfigName), config_text(lora, adapters, base));
}

}  // namespace weft
