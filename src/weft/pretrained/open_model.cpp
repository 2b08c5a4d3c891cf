// open_model: which kind of model a path names.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "weft/base/file.h"
#include "weft/base/nearest.h"
#include "weft/checkpoint/checkpoint_store.h"
#include "weft/models/model_json.h"
#include "weft/pretrained/encoders/encoders.h"
#include "weft/pretrained/gguf_model.h"
#include "weft/pretrained/gguf_tokenizer.h"
#include "weft/pretrained/hf_family.h"
#include "weft/pretrained/model_source.h"
#include "weft/pretrained/model_use.h"
#include "weft/pretrained/peft.h"
#include "weft/pretrained/python_json.h"
#include "weft/pretrained/quantized_tensors.h"
#include "weft/pretrained/random_model.h"
#include "weft/pretrained/text_part.h"
#include "weft/pretrained/tokenizer_path.h"
#include "weft/text/tokenizer_files.h"

namespace weft {
namespace {

constexpr uint64_t kMostConfigBytes = uint64_t(16) << 20;

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Why a folder without a checkpoint is none of a model.
std::string what_is_in(const std::string& folder) {
  FileSystem& fs = FileSystem::real();
  if (exists(fs, join_path(folder, kPeftConfigName)))
    return "is a PEFT folder, of adapters alone: name the model, and this with --adapter; weft inspect shows its "
           "adapter_model.safetensors";
  if (exists(fs, join_path(folder, "metrics.jsonl")))  // of a run
    return "holds no checkpoint yet: let the run save one first";
  const std::vector<std::string> names = list_folder(fs, folder);
  if (names.empty()) return "is empty: name a model's folder or file, a checkpoint or a run folder";
  for (const std::string& name : names)
    if (name.ends_with(".gguf")) return fmt::format("is no model, but a folder: name a file in it, as {}", name);
  constexpr size_t kShown = 5;
  const std::span shown = std::span(names).first(std::min(names.size(), kShown));
  return fmt::format("holds no model, which has a config.json, and no checkpoint, only {}{}: name another folder",
                     fmt::join(shown, ", "), names.size() > kShown ? ", ..." : "");
}

std::string newest_in(const std::string& folder, const std::string& named) {
  const FoundCheckpoint found = CheckpointStore(folder).newest_valid();
  if (found.checkpoint) return found.checkpoint->path();
  if (found.rejected.empty() && folder == named) throw UsageError("{} {}", folder, what_is_in(folder));
  if (found.rejected.empty()) throw Error("{} holds no checkpoint yet: let the run save one first", folder);
  throw Error("{} holds no valid checkpoint; the newest, {}, was rejected: {}", folder, found.rejected[0].path,
              found.rejected[0].reason);
}

ModelConfig config_of(const Checkpoint& checkpoint, WithMtp mtp) {
  ModelConfig config = parse_model_json(checkpoint.read(kModelName), join_path(checkpoint.path(), kModelName));
  if (mtp == WithMtp::no) config.mtp_layers = 0;
  return config;
}

class CheckpointSource final : public ModelSource {
 public:
  CheckpointSource(Checkpoint checkpoint, WithMtp mtp)
      : ModelSource(checkpoint.path(), SourceKind::checkpoint, config_of(checkpoint, mtp)),
        checkpoint_(std::move(checkpoint)) {
    const std::string behind = fmt::format("layers.{}.*", config().layers);  // the part that predicts further on
    std::vector<std::string_view> ignored;
    if (mtp == WithMtp::no) ignored.push_back(behind);
    bind(stored_weights(checkpoint_), names_of(config()), {}, ignored);
  }
  int64_t step() const override { return checkpoint_.step(); }
  std::unique_ptr<Tokenizer> tokenizer() const override {
    return parse_tokenizer(checkpoint_.read(kTokenizerName), join_path(path(), kTokenizerName));
  }
  // Checkpoints of older versions have none of these files.
  std::optional<ChatTemplate::Text> chat_template() const override {
    if (!checkpoint_.manifest().find(kTokenizerConfigName)) return {};
    return ChatTemplate::find_text_in(checkpoint_.read(kTokenizerConfigName),
                                      join_path(path(), kTokenizerConfigName));
  }
  SpecialIds special_ids() const override {
    SpecialIds ids;
    if (const auto json = generation_config()) add_special_ids(ids, json->root(), config().vocab);
    return ids;
  }
  SamplingDefaults sampling_defaults() const override {
    const auto json = generation_config();
    return json ? read_sampling_defaults(json->root()) : SamplingDefaults();
  }

 private:
  std::optional<JsonDocument> generation_config() const {
    if (!checkpoint_.manifest().find(kGenerationConfigName)) return {};
    return JsonDocument::parse(checkpoint_.read(kGenerationConfigName), join_path(path(), kGenerationConfigName));
  }

  Checkpoint checkpoint_;
};

std::unique_ptr<StoredTensors> open_tensors(const std::string& folder, const HfConfig& config) {
  std::unique_ptr<StoredTensors> weights = open_weights(folder);
  if (config.is_part) weights = text_part_tensors(std::move(weights));
  if (config.quantization) weights = with_whole_weights(std::move(weights), *config.quantization);
  return weights;
}

bool has_match(const StoredTensors& weights, std::string_view pattern) {
  return std::ranges::any_of(weights.all(),
                             [&](const StoredInfo& info) { return matches_pattern(info.name, pattern); });
}

// Whether a file has all experts of a layer in two tensors, of a family that may have them so. `layer`: in place of
// what the tables call one.
bool has_expert_stacks(const HfConfig& config, const StoredTensors& weights,
                       FunctionRef<std::string(std::string_view stored)> layer) {
  if (!config.family->names_of_stacks) return false;
  const std::vector<NameRow>& rows = config.family->names_of_stacks(config.model);
  const auto row = std::ranges::find(rows, "layers.#.moe.experts.gate.weight", &NameRow::param);
  return row != rows.end() && has_match(weights, layer(row->stored));
}

// Of each parameter the tensor that the file has.
void take_other_names(std::vector<ParamNames>& names, const HfFamily& family, const ModelConfig& config,
                      const StoredTensors& weights) {
  if (family.other_names.empty()) return;
  const std::vector<ParamNames> others = names_of(config, joined({family.other_names, family.names(config)}));
  for (size_t i = 0; i < others.size(); ++i)
    if (others[i].stored != names[i].stored && has_match(weights, others[i].stored.front())) names[i] = others[i];
}

// The configuration of a file that has the part that predicts further on, with it.
HfConfig with_mtp(HfConfig config, const StoredTensors& weights) {
  if (config.model.scores_texts()) return config;  // nothing comes further on
  const HfFamily& family = *config.family;
  const auto row = std::ranges::find(family.mtp, "layers.#.mtp.projection", &NameRow::param);
  if (row != family.mtp.end() &&
      has_match(weights, mtp_name(family, fmt::format("{}.weight", row->stored), config.model.layers)))
    config.model.mtp_layers = 1;
  return config;
}

// A model that makes vectors of texts may have been saved without its head.
void find_head(HfConfig& config, const StoredTensors& weights) {
  ModelConfig& c = config.model;
  if (c.tie_embeddings || c.scores_texts()) return;
  for (const ParamNames& names : names_of(*config.family, c))
    if (names.param == "head.weight") c.has_head = weights.find(names.stored.front()) != nullptr;
  if (!c.has_head) complete(c);
}

// What a file says is constant is what weft computes with; 16 bits may have rounded it.
void check_constants(const HfFamily& family, const StoredTensors& weights) {
  for (const StoredInfo& info : weights.all())
    for (const HfConstant& c : family.constants) {
      if (!matches_pattern(info.name, c.name)) continue;
      float value = 0;
      if (info.numel() == 1) weights.read(info, 0, 1, {&value, 1});
      if (!(std::abs(value - c.value) <= 0.05f * std::abs(c.value)))
        throw Error("{}: tensor {} is {}: only {} is supported", weights.path(), info.to_text(), value, c.value);
    }
}

class HuggingFaceSource final : public ModelSource {
 public:
  HuggingFaceSource(const std::string& folder, const HfConfig& config, std::unique_ptr<StoredTensors> weights)
      : ModelSource(folder, SourceKind::hugging_face, config.model) {
    const HfFamily& family = *config.family;
    std::vector<std::string_view> ignored(family.ignored.begin(), family.ignored.end());
    for (const HfConstant& c : family.constants) ignored.push_back(c.name);
    check_constants(family, *weights);
    if (config.model.tie_embeddings || config.model.scores_texts()) ignored.emplace_back("lm_head.weight");
    // What of a part that predicts further on is not read.
    const std::string behind = mtp_name(family, "model.layers.#.*", config.model.layers);
    if (!family.mtp.empty()) ignored.insert(ignored.end(), {behind, "mtp.*"});
    if (family.leaves_layers_behind) ignored.push_back(behind);
    std::vector<ParamNames> names = names_in(*weights, config);
    bind(std::move(weights), std::move(names), family.base, ignored);
  }
  std::unique_ptr<Tokenizer> tokenizer() const override { return open_tokenizer(FileSystem::real(), path()); }
  std::optional<ChatTemplate::Text> chat_template() const override { return ChatTemplate::find_text(path()); }
  SpecialIds special_ids() const override {
    SpecialIds ids;
    if (const auto json = generation_config()) add_special_ids(ids, json->root(), config().vocab);
    const JsonDocument whole = read_config_json(path());
    add_special_ids(ids, whole.root(), config().vocab);
    if (const JsonView part = whole.root()["text_config"]; part.is_object())
      add_special_ids(ids, part, config().vocab);
    return ids;
  }
  SamplingDefaults sampling_defaults() const override {
    const auto json = generation_config();
    return json ? read_sampling_defaults(json->root()) : SamplingDefaults();
  }
  EmbeddingRule embedding_rule() const override { return read_embedding_rule(path(), usual_pooling(config())); }
  ScoreRule score_rule() const override { return config().scores_texts() ? read_score_rule(path()) : ScoreRule(); }

 private:
  std::optional<JsonDocument> generation_config() const {
    const std::string file = join_path(path(), kGenerationConfigName);
    if (!exists(FileSystem::real(), file)) return {};
    return JsonDocument::parse(without_python_numbers(read_file(file, kMostConfigBytes)), file);
  }
  // Experts may lie in stacks in the layers and not behind them, or the other way round.
  static std::vector<ParamNames> names_in(const StoredTensors& weights, const HfConfig& config) {
    const HfFamily& family = *config.family;
    const ModelConfig& c = config.model;
    const auto in_layers = [](std::string_view stored) { return std::string(stored); };
    const auto behind = [&](std::string_view stored) { return mtp_name(family, stored, c.layers); };
    const bool has_stacks = config.has_stacks() || has_expert_stacks(config, weights, in_layers);
    std::vector<ParamNames> names = names_of(family, c, has_stacks);
    take_other_names(names, family, c, weights);
    if (c.mtp_layers == 0 || config.has_stacks() || has_expert_stacks(config, weights, behind) == has_stacks)
      return names;
    const std::vector<ParamNames> others = names_of(family, c, !has_stacks);
    const std::string block = fmt::format("layers.{}.", c.layers);
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i].param.starts_with(block)) names[i] = others[i];
    return names;
  }
};

class GgufSource final : public ModelSource {
 public:
  GgufSource(std::unique_ptr<GgufFile> file, WithMtp mtp)
      : GgufSource(read_gguf_model(*file, mtp == WithMtp::yes), std::move(file)) {}
  std::unique_ptr<Tokenizer> tokenizer() const override { return read_gguf_tokenizer(*file_); }
  std::optional<ChatTemplate::Text> chat_template() const override { return read_gguf_chat_template(*file_); }
  SpecialIds special_ids() const override { return read_gguf_special_ids(*file_); }
  SamplingDefaults sampling_defaults() const override { return read_gguf_sampling_defaults(*file_); }
  EmbeddingRule embedding_rule() const override { return read_gguf_embedding_rule(*file_, usual_pooling(config())); }

 private:
  GgufSource(const GgufModel& model, std::unique_ptr<GgufFile>&& file)
      : ModelSource(file->path(), SourceKind::gguf, model.config), file_(std::move(file)) {
    const std::vector<std::string_view> ignored(model.not_weights.begin(), model.not_weights.end());
    bind(stored_tensors(*file_), model.names, {}, ignored);
  }

  std::unique_ptr<GgufFile> file_;
};

// A preset's shape; with the part where the positions of its kind are such as the part has.
ModelConfig preset_with(const std::string& name, WithMtp mtp) {
  ModelConfig config = preset(name);
  if (mtp == WithMtp::yes && config.position == PositionKind::rope) config.mtp_layers = 1;
  return config;
}

}  // namespace

std::string find_checkpoint(const std::string& path) {
  FileSystem& fs = FileSystem::real();
  if (!exists(fs, path)) throw UsageError("{} does not exist: name a model, a checkpoint or a run folder", path);
  if (!is_folder(path)) throw UsageError("{} is a file: name a model, a checkpoint or a run folder", path);
  if (exists(fs, join_path(path, "manifest.json"))) return path;
  const std::string checkpoints = join_path(path, "checkpoints");
  return newest_in(is_folder(checkpoints) ? checkpoints : path, path);
}

bool is_hugging_face_folder(const std::string& path) {
  FileSystem& fs = FileSystem::real();
  return exists(fs, join_path(path, "config.json")) && !exists(fs, join_path(path, "manifest.json"));
}

namespace {

void require_decoder(const std::string& path) {
  if (const auto kind = encoder_kind(path))
    throw UsageError("{} is a model that is no decoder, which this needs: weft logits runs it{}", path,
                     kind == EncoderKind::t5     ? ", and so do weft generate and weft eval"
                     : kind == EncoderKind::bert ? ", and weft serve makes vectors and scores of texts by it"
                                                 : "");
}

HfConfig read_hf_config(const std::string& folder) {
  require_decoder(folder);
  const JsonDocument json = read_config_json(folder);
  HfConfig config = parse_hf_config(json.root());
  // Where earlier versions of ModelOpt say how they quantised.
  const std::string file = join_path(folder, "hf_quant_config.json");
  if (!config.quantization && exists(FileSystem::real(), file))
    config.quantization = parse_hf_quantization(JsonDocument::parse(read_file(file, kMostConfigBytes), file).root());
  return config;
}

// Of the preset that it names.
std::optional<ModelConfig> random_config(const std::string& path, WithMtp mtp = WithMtp::no) {
  if (!path.starts_with(kRandomModelPrefix)) return {};
  const std::string name = path.substr(kRandomModelPrefix.size());
  if (const auto known = preset_names(); std::ranges::find(known, name) == known.end())
    throw UsageError("{} names no preset: there are {}{}", path, fmt::join(known, ", "), did_you_mean(name, known));
  ModelConfig config = preset_with(name, mtp);
  complete(config);
  return config;
}

}  // namespace

std::unique_ptr<ModelSource> open_model(const std::string& path, Checkpoint::Check check, WithMtp mtp) {
  if (const auto config = random_config(path, mtp)) return random_model(path, *config);
  if (is_gguf(path)) {
    require_decoder(path);
    return std::make_unique<GgufSource>(std::make_unique<GgufFile>(path), mtp);
  }
  if (is_hugging_face_folder(path)) {
    HfConfig config = read_hf_config(path);
    std::unique_ptr<StoredTensors> weights = open_tensors(path, config);
    if (mtp == WithMtp::yes) config = with_mtp(std::move(config), *weights);
    if (config.model.bidirectional) find_head(config, *weights);
    return std::make_unique<HuggingFaceSource>(path, config, std::move(weights));
  }
  return std::make_unique<CheckpointSource>(Checkpoint::open(find_checkpoint(path), check), mtp);
}

std::vector<int32_t> stop_tokens(const ModelSource& source, const Tokenizer& tokenizer) {
  std::vector<int32_t> all = source.special_ids().ends;
  if (const std::optional<int32_t> end = tokenizer.end_of_document();
      end && std::ranges::find(all, *end) == all.end())
    all.push_back(*end);
  return all;
}

std::vector<int32_t> encode_prompt(const ModelSource& source, const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.encode(text, {.add_special = true});
  const std::vector<int32_t> ends = stop_tokens(source, tokenizer);
  // A beginning that is also an end, as GPT-2's, stays.
  if (ids.size() > 1 && std::ranges::find(ends, ids.back()) != ends.end()) ids.pop_back();
  return ids;
}

ModelConfig model_config_of(const std::string& path, WithMtp mtp) {
  if (const auto config = random_config(path, mtp)) return *config;
  if (is_gguf(path)) {
    require_decoder(path);
    return read_gguf_model(GgufFile(path), mtp == WithMtp::yes).config;
  }
  if (is_hugging_face_folder(path)) {
    const HfConfig config = read_hf_config(path);
    return mtp == WithMtp::no ? config.model : with_mtp(config, *open_tensors(path, config)).model;
  }
  return config_of(Checkpoint::open(find_checkpoint(path), Checkpoint::Check::sizes), mtp);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name) {
  FileSystem& fs = FileSystem::real();
  const bool is_checkpoint = exists(fs, join_path(name, "manifest.json"));
  if (!is_checkpoint && (!is_folder(name) || holds_tokenizer(fs, name)))
    return open_tokenizer_path(fs, name, "MODEL_OR_TOKENIZER");
  const Checkpoint checkpoint = Checkpoint::open(find_checkpoint(name), Checkpoint::Check::sizes);
  return parse_tokenizer(checkpoint.read(kTokenizerName), join_path(checkpoint.path(), kTokenizerName));
}

}  // namespace weft
