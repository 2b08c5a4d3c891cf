// PEFT: names of modules and tensors.
#include "weft/pretrained/peft.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "weft/base/json.h"
#include "weft/formats/safetensors.h"
#include "weft/pretrained/assembled.h"
#include "weft/pretrained/hf_family.h"
#include "weft/pretrained/peft_folder.h"
#include "weft/pretrained/text_part.h"

namespace weft {
namespace {

constexpr std::string_view kWeight = ".weight";

// What a module's tensors are called behind its name.
std::string_view suffix_of(std::string_view adapter_param) {
  return adapter_param.ends_with(".lora_a")   ? "lora_A.weight"
         : adapter_param.ends_with(".lora_b") ? "lora_B.weight"
                                              : "lora_magnitude_vector";
}

// "model.layers.0.self_attn.q_proj.weight" -> "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", and
// so for each expert whose projection is a tensor of its own. What stands beside a part of a tensor is that part of
// the adapter beside the tensor: all of lora_A, and its rows of the others.
ParamNames adapter_names(const ParamNames& base, ParamNames adapter) {
  const bool is_stack = base.shape.rank() == 3;
  const bool is_whole = base.rows.keeps_order() && base.rows.total == 0;
  const std::string_view suffix = suffix_of(adapter.param);
  if ((is_stack && (!is_whole || int64_t(base.stored.size()) != base.shape[0])) || !base.cols.keeps_order())
    throw Error("{} is a part of {}, beside which PEFT has no adapter of its own", base.param, base.stored.front());
  if (!is_stack && !adapter.param.ends_with(".lora_a")) adapter.rows = base.rows;
  adapter.stored.clear();
  for (const std::string& stored : base.stored) {
    if (!stored.ends_with(kWeight)) throw Error("PEFT has no name for an adapter beside {}", stored);
    const std::string_view module = std::string_view(stored).substr(0, stored.size() - kWeight.size());
    adapter.stored.push_back(fmt::format("{}{}.{}", kPeftPrefix, module, suffix));
  }
  return adapter;
}

// Of the adapters that `config` says, beside parameters that are stored under the names of `base`; those that
// `tensors` has under weft's own names are called so.
std::vector<ParamNames> adapter_names(const ModelConfig& config, const std::vector<ParamNames>& base,
                                      const StoredTensors* tensors = nullptr) {
  std::unordered_map<std::string_view, const ParamNames*> weights;
  for (const ParamNames& names : base) weights.emplace(names.param, &names);
  std::vector<ParamNames> all;
  for (ParamNames& names : names_of(config)) {
    if (!is_adapter(names.param)) continue;
    if (tensors && tensors->find(names.param)) {
      all.push_back(std::move(names));
      continue;
    }
    const std::string linear = names.param.substr(0, names.param.rfind('.'));
    all.push_back(adapter_names(*weights.at(linear + std::string(kWeight)), std::move(names)));
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
  AdaptedSource(std::shared_ptr<const ModelSource> base, PeftFolder folder, ModelConfig config)
      : ModelSource(base->path(), base->kind(), std::move(config)), base_(std::move(base)) {
    const bool has_peft_names = kind() == SourceKind::hugging_face;
    const std::vector<ParamNames> names = has_peft_names ? base_->names() : hf_names(this->config());
    std::unique_ptr<StoredTensors> tensors = PeftFolder::tensors_of(std::move(folder), this->config().lora, names);
    all_names_ = adapter_names(this->config(), names, tensors.get());
    has_score_ = tensors->find(kPeftScore) != nullptr;
    if (has_score_)
      all_names_.push_back({.param = std::string(kScoreName),
                            .shape = {this->config().labels, this->config().hidden},
                            .stored = {std::string(kPeftScore)}});
    bind(std::move(tensors), all_names_);
    std::vector<ParamNames> of_base = base_->names();
    if (has_score_)  // in place of another head
      std::erase_if(of_base,
                    [](const ParamNames& n) { return n.param == kScoreName || n.param.starts_with("head."); });
    all_names_.insert(all_names_.begin(), of_base.begin(), of_base.end());
  }
  const std::vector<ParamNames>& names() const override { return all_names_; }
  int64_t step() const override { return base_->step(); }
  SpecialIds special_ids() const override { return base_->special_ids(); }
  SamplingDefaults sampling_defaults() const override { return base_->sampling_defaults(); }
  EmbeddingRule embedding_rule() const override { return base_->embedding_rule(); }
  ScoreRule score_rule() const override {
    return base_->config().labels == config().labels ? base_->score_rule() : ModelSource::score_rule();
  }
  std::optional<DType> dtype_of(const std::string& param) const override {
    return is_own(param) ? ModelSource::dtype_of(param) : base_->dtype_of(param);
  }
  std::unique_ptr<Tokenizer> tokenizer() const override { return base_->tokenizer(); }
  std::optional<RowsOfBlocks> blocks_of(const std::string& param) const override {
    return is_own(param) ? std::nullopt : base_->blocks_of(param);
  }
  std::optional<StoredValues> values_of(const std::string& param) const override {
    return is_own(param) ? ModelSource::values_of(param) : base_->values_of(param);
  }
  std::optional<ChatTemplate::Text> chat_template() const override { return base_->chat_template(); }
  void read(const std::string& param, int64_t first, std::span<float> out) const override {
    is_own(param) ? ModelSource::read(param, first, out) : base_->read(param, first, out);
  }

 private:
  bool is_own(std::string_view param) const { return is_adapter(param) || (has_score_ && param == kScoreName); }

  std::shared_ptr<const ModelSource> base_;
  bool has_score_ = false;
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
      stored = fmt::format("{}{}", kPeftPrefix, name_inside(std::string_view(stored).substr(kPeftPrefix.size())));
}

bool is_a(const AssembledTensor& t) { return t.name.ends_with(suffix_of(".lora_a")); }
bool is_b(const AssembledTensor& t) { return t.name.ends_with(suffix_of(".lora_b")); }

// The adapters beside parts of one projection are a tensor of the folder, behind each other along the rank: each part
// has its own lora_A, and lora_B zeros where another part's is. All tensors have the rank of the largest.
Shape shape_of(const AssembledTensor& t, int64_t rank) {
  return is_a(t) ? Shape{rank, t.dims[1]} : is_b(t) ? Shape{t.dims[0], rank} : Shape{t.dims[0]};
}

int64_t size_of_part(const AssembledTensor::Part& part) { return part.names->num_rows() * part.names->num_cols(); }

std::vector<float> values_of(const AssembledTensor& tensor, const ModelSource& model, int64_t rank) {
  const int64_t own = model.config().lora.rank;
  std::vector<float> all(size_t(shape_of(tensor, rank).numel())), part;
  for (size_t p = 0; p < tensor.parts.size(); ++p) {
    const ParamNames& names = *tensor.parts[p].names;
    const int64_t size = size_of_part(tensor.parts[p]);
    part.resize(size_t(size));
    model.read(names.param, int64_t(tensor.parts[p].index) * size, part);
    if (is_a(tensor)) {
      std::ranges::copy(part, all.begin() + std::ptrdiff_t(int64_t(p) * size));
      continue;
    }
    const int64_t from = is_b(tensor) ? own : 1, to = is_b(tensor) ? rank : 1;  // numbers to a row
    for (int64_t row = 0; row * from < size; ++row)
      std::copy_n(part.begin() + row * from, from,
                  all.begin() + names.rows(row) * to + (is_b(tensor) ? int64_t(p) * own : 0));
  }
  return all;
}

// Rows without an adapter would get the length 0.
void refuse_some_lengths(const AssembledTensor& t) {
  if (is_a(t) || is_b(t)) return;
  int64_t rows = 0;
  for (const AssembledTensor::Part& part : t.parts) rows += size_of_part(part);
  if (rows != t.dims[0])
    throw Error("{} would have lengths of some rows only: adapt all projections of that tensor, or none", t.name);
}

std::string config_text(const ModelConfig& model, int64_t rank, const std::vector<ParamNames>& adapters,
                        const std::string& base) {
  const LoraConfig& lora = model.lora;
  std::set<std::string> modules;
  for (const ParamNames& names : adapters) {
    const std::string module = names.stored[0].substr(0, names.stored[0].rfind(".lora_"));
    modules.insert(module.substr(module.rfind('.') + 1));
  }
  // A head that scores texts is saved whole, as PEFT has it.
  const auto saved = model.scores_texts() ? nlohmann::json{"score"} : nlohmann::json();
  return to_json_text({{"peft_type", "LORA"},
                       {"task_type", model.scores_texts() ? "SEQ_CLS" : "CAUSAL_LM"},
                       {"base_model_name_or_path", base},
                       {"r", rank},
                       {"lora_alpha", lora.alpha * float(rank / lora.rank)},
                       {"lora_dropout", lora.dropout},
                       {"target_modules", modules},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"init_lora_weights", true},
                       {"inference_mode", true},
                       {"modules_to_save", saved},
                       {"use_dora", lora.is_dora},
                       {"use_rslora", false}},
                      2);
}

}  // namespace

namespace {

ModelConfig with_adapters(const PeftFolder& folder, ModelConfig config) {
  config.lora = folder.config(config);
  if (folder.labels() > 0) config.labels = folder.labels();
  return config;
}

}  // namespace

ModelConfig read_adapted_config(const std::string& folder, const ModelConfig& base) {
  return with_adapters(PeftFolder(folder), base);
}

std::unique_ptr<ModelSource> open_adapted(std::shared_ptr<const ModelSource> base, const std::string& folder) {
  if (base->config().lora.rank > 0)
    throw Error("{} has adapters already, and {} would be a second one beside them", base->path(), folder);
  PeftFolder opened(folder);
  ModelConfig config = with_adapters(opened, base->config());
  try {
    complete(config);
  } catch (const UsageError& e) {
    throw Error("{}: {}", folder, e.what());
  }
  return std::make_unique<AdaptedSource>(std::move(base), std::move(opened), std::move(config));
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
  if (adapted->tensors().find(kPeftScore))
    throw Error("{}: an adapter with a head that scores texts cannot stand beside others: merge it with weft convert",
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
  const std::vector<AssembledTensor> tensors = assemble(adapters);
  size_t most = 1;
  for (const AssembledTensor& t : tensors)
    if (is_a(t)) most = std::max(most, t.parts.size());
  const int64_t rank = lora.rank * int64_t(most);
  for (const AssembledTensor& t : tensors) refuse_some_lengths(t);
  std::vector<SafetensorsInfo> infos;
  for (const AssembledTensor& t : tensors) infos.push_back({t.name, DType::f32, shape_of(t, rank)});
  const ModelConfig& config = model.config();
  if (config.scores_texts()) infos.push_back({std::string(kPeftScore), DType::f32, {config.labels, config.hidden}});
  make_folders(fs, folder);
  SafetensorsWriter writer(fs, join_path(folder, kPeftWeightsName), infos, {{"format", "pt"}});
  for (const AssembledTensor& t : tensors) {
    const std::vector<float> values = values_of(t, model, rank);
    writer.write(std::as_bytes(std::span(values)));
  }
  if (config.scores_texts()) {
    std::vector<float> score(size_t(config.labels * config.hidden));
    model.read(std::string(kScoreName), 0, score);
    writer.write(std::as_bytes(std::span(score)));
  }
  writer.finish();
  write_file_atomically(fs, join_path(folder, kPeftConfigName), config_text(config, rank, adapters, base));
}

}  // namespace weft
