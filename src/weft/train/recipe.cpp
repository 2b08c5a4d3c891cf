// Recipe: from keys to a checked configuration.
#include "weft/train/recipe.h"

#include <cmath>
#include <cstdlib>

#include "weft/models/model_fields.h"
#include "weft/pretrained/peft.h"
#include "weft/train/objective_recipe.h"
#include "weft/train/recipe_names.h"

namespace weft {
namespace {

constexpr int64_t kMostSteps = int64_t(1) << 40;

// A default of 32 bits as people write it, 1e-05 and not 9.999999747378752e-06: the shortest number that reads back
// the same.
double shortest_of(float value) {
  const double shortest = std::strtod(fmt::format("{}", value).c_str(), nullptr);
  return float(shortest) == value ? shortest : double(value);
}

// Reads the keys of [model] over what a family, a preset or a saved model says.
class ModelReader {
 public:
  // saved: the path of a model whose shape is its own.
  explicit ModelReader(Toml& toml, std::string saved = {}) : toml_(toml), saved_(std::move(saved)) {}
  void number(const char* key, int64_t& value) {
    if (is_asked(key)) value = toml_.integer(name(key), value, 0, 1 << 24);
  }
  void number(const char* key, double& value) {
    if (is_asked(key)) value = toml_.number(name(key), value, 0, 1e12);
  }
  void number(const char* key, float& value) {
    if (is_asked(key)) value = float(toml_.number(name(key), shortest_of(value), 0, 1e12));
  }
  void flag(const char* key, bool& value) {
    if (is_asked(key)) value = toml_.get<bool>(name(key), value);
  }
  void choice(const char* key, std::span<const std::string_view> names, int& index) {
    if (!is_asked(key)) return;
    const std::string chosen = toml_.choice(name(key), std::string(names[size_t(index)]), names);
    index = int(std::ranges::find(names, chosen) - names.begin());
  }
  void list(const char* key, std::vector<double>& values) {
    if (is_asked(key) && (!values.empty() || toml_.has(name(key))))
      values = toml_.get<std::vector<double>>(name(key), values);
  }
  void begin_group(const char* key, bool is_on) { without_ = is_on ? "" : key; }
  void end_group() { without_.clear(); }

 private:
  static std::string name(const char* key) { return fmt::format("model.{}", key); }
  static bool is_of_training(std::string_view key) {
    constexpr std::string_view kKeys[] = {"capacity_factor", "aux_loss", "z_loss", "router_bias_rate",
                                          "mtp_layers",      "mtp_loss", "labels"};
    return std::ranges::find(kKeys, key) != std::end(kKeys);
  }
  // A key that counts for nothing is a mistake.
  bool is_asked(const char* key) {
    if (!saved_.empty() && !is_of_training(key)) {
      if (toml_.has(name(key)))
        toml_.reject(name(key), fmt::format("the model in {} says it itself: remove the key", saved_));
      return false;
    }
    if (without_.empty()) return true;
    if (toml_.has(name(key)))
      toml_.reject(name(key), fmt::format("the model has no {0}: write model.{0} as well", without_));
    return false;
  }

  Toml& toml_;
  std::string saved_;
  std::string without_;  // the key without which those that follow say nothing
};

// What the layers with experts ask of the mesh.
void check_experts(Toml& toml, const ModelConfig& c, const MeshShape& mesh) {
  if (mesh.ep > 1 && c.experts < mesh.ep)
    toml.reject("mesh.ep",
                fmt::format("the model has {} experts: write at most that, or more model.experts", c.experts));
  if (mesh.shard * mesh.cp % mesh.ep != 0)
    toml.reject("mesh.ep",
                fmt::format("it must divide the {} ranks of mesh.dp / mesh.hsdp x mesh.cp", mesh.shard * mesh.cp));
}

// The shape of a saved model is its own; what only training knows may be set. A part that predicts further on is left
// out of training, unless it is asked for: then a model that has none gets a new one.
ModelConfig read_saved_model(Toml& toml, const std::string& path) {
  for (const char* key : {"model.preset", "model.family"})
    if (toml.has(key)) toml.reject(key, fmt::format("the model in {} says it itself: remove the key", path));
  const bool has_mtp = toml.integer("model.mtp_layers", 0, 0, 1) > 0;
  ModelConfig c = model_config_of(path, WithMtp(has_mtp));
  const int64_t labels = c.labels;
  ModelReader reader(toml, path);
  visit_model_fields(reader, c);
  if (labels > 0 && c.labels != labels)
    toml.reject("model.labels", fmt::format("the model in {} has {}: remove the key", path, labels));
  if (c.scores_texts()) complete(c);  // its head is not that of the saved model
  c.dropout = float(toml.number("model.dropout", shortest_of(c.dropout), 0, 0.999));
  return c;
}

// Adapters are new, or, where the saved model has some, go on as they are.
void read_lora(Toml& toml, ModelConfig& c, const std::string& path) {
  LoraConfig& lora = c.lora;
  if (!path.empty() && lora.rank > 0)
    toml.reject("lora.path", "the saved model has adapters already: remove the key");
  if (!path.empty()) {
    const int64_t labels = c.labels;
    c = read_adapted_config(path, c);
    if (labels > 0 && c.labels != labels)
      toml.reject("model.labels", fmt::format("the adapters in {} are of {}: remove the key", path, c.labels));
    if (c.scores_texts()) complete(c);
  }
  if (lora.rank > 0) {
    for (const char* key : {"lora.rank", "lora.alpha", "lora.targets", "lora.dora"})
      if (toml.has(key)) toml.reject(key, "saved adapters say it themselves: remove the key");
  } else if (toml.has_section("lora")) {
    lora.rank = toml.integer("lora.rank", 8, 1, kMostLoraRank);
    lora.alpha = float(toml.number("lora.alpha", double(2 * lora.rank), 1e-6, 1e6));
    lora.targets = lora_targets(toml.get<std::vector<std::string>>("lora.targets", {"q", "v"}));
    lora.is_dora = toml.get<bool>("lora.dora", false);
  } else {
    return;
  }
  lora.dropout = float(toml.number("lora.dropout", shortest_of(lora.dropout), 0, 0.999));
  lora.base = toml.choice("lora.quantize", "none", {"none", "nf4"}) == "nf4" ? BaseFormat::nf4 : BaseFormat::plain;
}

// A model that scores texts learns from pairs of them or from the classes that they are of.
void check_labels(Toml& toml, const Recipe& r) {
  const bool is_reward = r.preference.method == PreferenceMethod::reward;
  if (is_reward && r.model.labels != 1)
    toml.reject("preference.method", "a reward is the one score of a text: write model.labels = 1 beside it");
  if (!r.model.scores_texts()) return;
  if (!r.distill.teacher.empty() || r.policy.is_on() || (r.preference.method != PreferenceMethod::none && !is_reward))
    toml.reject("model.labels",
                "a model that scores texts learns classes, or from [preference] with method = \"reward\": write 0 "
                "beside another objective");
  if (r.model.labels == 1 && !is_reward)
    toml.reject("model.labels",
                "one label is a reward, which is learned from pairs: write [preference] with method = \"reward\", or "
                "2 or more classes");
  if (!is_reward && r.data.format != "auto")
    toml.reject("data.format", "texts of classes have one form, {\"text\", \"label\"}: remove the key");
}

void check_direction(Toml& toml, const Recipe& r) {
  if (r.model.bidirectional)
    toml.reject("model.bidirectional",
                "training predicts each token from those before it: write false, or another model to begin with");
}

// What the part that predicts further on does not go with.
void check_mtp(Toml& toml, const Recipe& r) {
  if (r.model.mtp_layers == 0) return;
  if (r.model.lora.rank > 0)
    toml.reject("model.mtp_layers", "beside adapters nothing else is trained: write 0, or remove [lora]");
  if (r.preference.method != PreferenceMethod::none || !r.distill.teacher.empty() || r.policy.is_on())
    toml.reject("model.mtp_layers",
                "the part learns from the next tokens of texts: write 0 beside [preference], [distill] or [rl]");
}

void check_seq_len(Toml& toml, const ModelConfig& c, int64_t seq_len, int cp) {
  if (seq_len > c.context)
    toml.reject("train.seq_len",
                fmt::format("the model's context is {}: write at most that, or a larger model.context", c.context));
  if (cp > 1 && c.selects_keys() && seq_len > c.index_topk)
    toml.reject("mesh.cp",
                fmt::format("ranks that share texts do not select keys among those of each other: write 1, or "
                            "at most model.index_topk = {} as train.seq_len",
                            c.index_topk));
}

std::string read_family(Toml& toml) {
  const std::vector<std::string> names = family_names();
  const std::vector<std::string_view> choices(names.begin(), names.end());
  return toml.choice("model.family", "llama", choices);
}

ModelConfig read_model(Toml& toml, int64_t seq_len) {
  ModelConfig c;
  if (const auto name = toml.find<std::string>("model.preset"))
    c = preset(*name);
  else
    c = family_defaults(read_family(toml));
  if (toml.has("model.preset") && toml.has("model.family"))
    toml.reject("model.family", "model.preset already names the family: remove one of the two");

  ModelReader reader(toml);
  visit_model_fields(reader, c);
  if (toml.has("model.norm_bias") && c.norm_bias && !c.has_norm_bias())
    toml.reject("model.norm_bias", "norms of model.norm = \"rmsnorm\" have no bias: leave it out");
  if (toml.has("model.qk_norm_turned") && c.qk_norm_turned && !c.qk_norm)
    toml.reject("model.qk_norm_turned", "it says where model.qk_norm stands: write model.qk_norm = true too");
  if (toml.has("model.qk_norm_weight") && !c.qk_norm_weight && !c.qk_norm)
    toml.reject("model.qk_norm_weight", "it is of model.qk_norm: write model.qk_norm = true too");
  if (c.context == 0) c.context = seq_len;
  c.dropout = float(toml.number("model.dropout", shortest_of(c.dropout), 0, 0.999));
  return c;
}

DataConfig read_data(Toml& toml, bool has_model) {
  DataConfig c;
  c.train = toml.require<std::string>("data.train");
  c.valid = toml.get<std::string>("data.valid", "");
  // Pairs and prompts are not cut off.
  const bool has_part = c.valid.empty() && !toml.has_section("preference") && !toml.has_section("rl");
  c.valid_fraction = toml.number("data.valid_fraction", has_part ? 0.1 : 0.0, 0, 0.9);
  c.tokenizer = toml.get<std::string>("data.tokenizer", has_model ? kTokenizerOfModel : c.tokenizer);
  if (c.tokenizer == kTokenizerOfModel && !has_model)
    toml.reject("data.tokenizer", "there is no saved model whose tokenizer it could be: write model.path too");
  c.documents = toml.get<bool>("data.documents", c.documents);
  c.format = toml.choice("data.format", c.format, {"auto", "text", "chat", "alpaca", "completion"});
  c.chat_template = toml.find<std::string>("data.chat_template").value_or("");
  return c;
}

// global_batch = micro_batch x dp x accumulation; what is left out follows from the rest.
void settle_batch(Toml& toml, TrainConfig& t, int dp, int pp) {
  t.global_batch = toml.integer("train.global_batch", 0, 0, 1 << 24);
  t.micro_batch = toml.integer("train.micro_batch", 0, 0, 1 << 24);
  t.accumulation = toml.integer("train.accumulation", 0, 0, 1 << 24);
  if (t.global_batch == 0) {
    if (t.micro_batch == 0) toml.reject("train.global_batch", "write the rows of a step, over all ranks");
    t.global_batch = t.micro_batch * dp * std::max<int64_t>(t.accumulation, 1);
  }
  // A pipeline wants several micro-batches for each of its stages.
  if (t.micro_batch == 0 && t.accumulation == 0 && pp > 1 && t.global_batch % dp == 0)
    for (t.accumulation = 4 * pp; t.global_batch / dp % t.accumulation != 0;) --t.accumulation;
  if (t.micro_batch == 0) {
    const int64_t parts = dp * std::max<int64_t>(t.accumulation, 1);
    t.micro_batch = t.global_batch / parts;
  }
  if (t.accumulation == 0 && t.micro_batch > 0) t.accumulation = t.global_batch / (t.micro_batch * dp);
  if (t.micro_batch >= 1 && t.micro_batch * dp * t.accumulation == t.global_batch) return;
  const bool has_micro = toml.has("train.micro_batch"), has_accumulation = toml.has("train.accumulation");
  std::string product = fmt::format("dp {}", dp);
  if (has_micro) product = fmt::format("micro_batch {} x {}", t.micro_batch, product);
  if (has_accumulation) product += fmt::format(" x accumulation {}", t.accumulation);
  throw UsageError("train.global_batch = {} is {} {}: change train.global_batch, or {}", t.global_batch,
                   has_micro && has_accumulation ? "not" : "no multiple of", product,
                   has_micro          ? "train.micro_batch"
                   : has_accumulation ? "train.accumulation"
                                      : "mesh.dp");
}

TrainConfig read_train(Toml& toml, const MeshShape& mesh) {
  TrainConfig t;
  t.steps = toml.integer("train.steps", 1000, 0, kMostSteps);
  t.seq_len = toml.integer("train.seq_len", 256, 1, 1 << 24);
  settle_batch(toml, t, mesh.dp(), mesh.pp);
  t.seed = uint64_t(toml.integer("train.seed", int64_t(t.seed), 0));
  t.precision = choose(toml, "train.precision", Precision::fp32, kPrecisionNames);
  t.gradients = gradient_type(toml.choice("train.gradients", "fp32", kGradientNames), t.precision, "train.gradients");
  t.eval_every = toml.integer("train.eval_every", 0, 0, kMostSteps);
  t.eval_batches = toml.integer("train.eval_batches", 0, 0, kMostSteps);
  t.on_not_finite =
      toml.choice("train.on_not_finite", "stop", {"stop", "skip"}) == "stop" ? OnNotFinite::stop : OnNotFinite::skip;
  return t;
}

void read_pipeline(Toml& toml, MeshConfig& c) {
  const auto name = toml.get<std::string>("mesh.schedule", "1f1b");
  const auto kind = schedule_kind(name);
  if (!kind) toml.reject("mesh.schedule", fmt::format("write one of {}", fmt::join(schedule_names(), ", ")));
  c.schedule = *kind;
  const int usual = c.shape.pp > 1 ? default_virtual_stages(*kind) : 1;
  c.layers_per_stage = toml.get<std::string>("mesh.layers_per_stage", "");
  c.virtual_stages = int(toml.integer("mesh.virtual_stages", usual, 1, 64));
}

// A recipe that says what is offloaded keeps it also where that is nothing at the moment.
void read_offload_dir(Toml& toml, Recipe& r) {
  OffloadConfig& c = r.mesh.offload;
  const auto is_on_disk = [](OffloadTo to) { return to == OffloadTo::disk; };
  if (is_on_disk(c.optimizer) || is_on_disk(c.parameters) || is_on_disk(c.activations)) {
    c.dir = toml.get<std::string>("mesh.offload_dir", r.log.dir + "/offload");
    return;
  }
  constexpr const char* kKeys[] = {"mesh.offload_optimizer", "mesh.offload_parameters", "mesh.offload_activations"};
  if (toml.has("mesh.offload_dir") && std::ranges::none_of(kKeys, [&](const char* key) { return toml.has(key); }))
    toml.reject("mesh.offload_dir",
                "nothing is offloaded to a disk: leave it out, or write mesh.offload_optimizer = \"disk\"");
  toml.allow("mesh.offload_dir");
}

void check_trace_steps(Toml& toml, std::span<const int64_t> steps, int64_t last) {
  if (steps.empty()) return;
  if (steps.size() != 2 || steps[0] > steps[1])
    toml.reject("log.trace_steps", "write the first and the last step to trace, as [10, 12]");
  if (steps[0] > last || steps[1] < 1)
    toml.reject(
        "log.trace_steps",
        fmt::format("nothing would be traced, since steps go from 1 to train.steps = {}: write some of these, "
                    "or []",
                    last));
}

}  // namespace

RecomputePolicy read_recompute(Toml& toml) {
  using What = RecomputePolicy::What;
  const auto text = toml.get<std::string>("mesh.recompute", "none");
  if (const auto name = std::ranges::find(kRecomputeNames, text); name != std::end(kRecomputeNames))
    return {What(name - kRecomputeNames)};
  if (text.starts_with(kRecomputeEvery) && text.size() <= kRecomputeEvery.size() + 6) {
    int every = 0;
    bool is_number = text.size() > kRecomputeEvery.size();
    for (const char c : text.substr(kRecomputeEvery.size())) {
      is_number &= c >= '0' && c <= '9';
      every = every * 10 + (c - '0');
    }
    if (is_number && every > 0) return {What::block, every};
  }
  toml.reject("mesh.recompute", "write \"none\", \"attention\", \"mlp\", \"block\" or \"every:N\"");
}

OffloadConfig read_offload(Toml& toml, Zero zero) {
  const auto read = [&](const char* key) { return choose(toml, key, OffloadTo::none, kOffloadNames); };
  OffloadConfig c;
  c.optimizer = read("mesh.offload_optimizer");
  c.parameters = read("mesh.offload_parameters");
  c.activations = read("mesh.offload_activations");
  if (c.parameters != OffloadTo::none && zero != Zero::parameters)
    toml.reject("mesh.offload_parameters", "whole parameters are always in use: write mesh.zero = 3, or \"none\"");
  return c;
}

MeshConfig read_mesh(Toml& toml) {
  MeshConfig c;
  const auto axis = [&](const char* key) { return int(toml.integer(key, 1, 1, 1 << 16)); };
  const int dp = axis("mesh.dp");
  c.shape.replicate = axis("mesh.hsdp");
  if (dp % c.shape.replicate != 0)
    toml.reject("mesh.hsdp", fmt::format("it must divide mesh.dp = {}: each shard is held by so many ranks", dp));
  c.shape.shard = dp / c.shape.replicate;
  c.shape.pp = axis("mesh.pp"), c.shape.cp = axis("mesh.cp"), c.shape.tp = axis("mesh.tp"),
  c.shape.ep = axis("mesh.ep");
  c.zero = Zero(toml.integer("mesh.zero", c.shape.replicate > 1 ? 3 : 0, 0, 3));
  if (c.shape.replicate > 1 && c.zero == Zero::none)
    toml.reject("mesh.zero", "mesh.hsdp shards within groups: write 1, 2 or 3, or leave mesh.hsdp out");
  c.reshard_after_forward = toml.get<bool>("mesh.reshard_after_forward", true);
  c.sequence_parallel = toml.get<bool>("mesh.sequence_parallel", false);
  c.cp_mode = choose(toml, "mesh.cp_mode", ContextMode::ring, kContextModeNames);
  c.offload = read_offload(toml, c.zero);
  read_pipeline(toml, c);
  c.device = choose(toml, "mesh.device", Device::cpu, kDeviceNames);
  c.timeout_s = toml.integer("mesh.timeout_s", c.timeout_s, 1, 1 << 20);
  return c;
}

GradientType gradient_type(std::string_view name, Precision precision, std::string_view key) {
  const auto type = GradientType(std::ranges::find(kGradientNames, name) - std::begin(kGradientNames));
  if (type == GradientType::bf16 && precision != Precision::bf16 && precision != Precision::fp8)
    throw UsageError(
        "{} = \"bf16\": only products of bf16 leave gradients in bf16; write train.precision = \"bf16\" or "
        "\"fp8\", or \"fp32\" here",
        key);
  return type;
}

DType Recipe::dtype() const {
  return train.precision == Precision::fp32   ? DType::f32
         : train.precision == Precision::fp16 ? DType::f16
                                              : DType::bf16;
}

Recipe read_recipe(Toml& toml) {
  Recipe r;
  r.mesh = read_mesh(toml);
  r.train = read_train(toml, r.mesh.shape);
  r.train.recompute = read_recompute(toml);
  if (r.mesh.offload.activations != OffloadTo::none && r.train.recompute.what != RecomputePolicy::What::block)
    toml.reject("mesh.offload_activations",
                "it moves the inputs of recomputed blocks: write mesh.recompute = \"block\" or \"every:N\", or "
                "\"none\" here");
  if (!ContextLayout::divides(r.train.seq_len, r.mesh.shape.cp))
    toml.reject(
        "train.seq_len",
        fmt::format("it must divide by 2 x mesh.cp = {}: every rank holds two chunks of a row", 2 * r.mesh.shape.cp));
  if (r.mesh.sequence_parallel && r.train.micro_batch * r.train.seq_len / r.mesh.shape.cp % r.mesh.shape.tp != 0)
    toml.reject(
        "mesh.sequence_parallel",
        fmt::format("the {} tokens of a micro-batch do not divide by mesh.tp = {}: change train.micro_batch or "
                    "train.seq_len, or write false",
                    r.train.micro_batch * r.train.seq_len / r.mesh.shape.cp, r.mesh.shape.tp));
  r.model_path = toml.find<std::string>("model.path").value_or("");
  r.model = r.model_path.empty() ? read_model(toml, r.train.seq_len) : read_saved_model(toml, r.model_path);
  r.lora_path = toml.find<std::string>("lora.path").value_or("");
  if (!r.lora_path.empty() && r.model_path.empty())
    toml.reject("lora.path", "adapters go on beside the model that they are for: write model.path too");
  read_lora(toml, r.model, r.lora_path);
  if (r.train.precision == Precision::fp8 && r.model.lora.base == BaseFormat::nf4)
    toml.reject("lora.quantize",
                "\"none\" beside fp8, which has no products with NF4; or write train.precision = \"bf16\"");
  check_seq_len(toml, r.model, r.train.seq_len, r.mesh.shape.cp);
  check_experts(toml, r.model, r.mesh.shape);
  r.data = read_data(toml, !r.model_path.empty());
  read_preference(toml, r);
  read_distill(toml, r);
  read_policy(toml, r);
  check_mtp(toml, r);
  check_labels(toml, r);
  check_direction(toml, r);
  r.optimizer = read_optimizer(toml, r.train.steps);
  r.log.dir = toml.get<std::string>("log.dir", "runs/weft");
  read_offload_dir(toml, r);
  r.log.tensorboard = toml.get<bool>("log.tensorboard", true);
  r.log.trace_steps = toml.get<std::vector<int64_t>>("log.trace_steps", {});
  check_trace_steps(toml, r.log.trace_steps, r.train.steps);
  r.checkpoint.dir = toml.get<std::string>("checkpoint.dir", r.log.dir + "/checkpoints");
  r.checkpoint.every = toml.integer("checkpoint.every", 0, 0, kMostSteps);
  r.checkpoint.keep = toml.integer("checkpoint.keep", 3, 0, kMostSteps);
  r.checkpoint.is_async = toml.get("checkpoint.async", true);
  r.checkpoint.resume = toml.get<std::string>("checkpoint.resume", "auto");
  r.data.cache_dir = toml.get<std::string>("data.cache_dir", r.log.dir + "/data");
  toml.reject_unknown();
  r.text = toml.to_text();
  return r;
}

std::optional<ModelConfig> beside_of(const Recipe& recipe) {
  const std::string& path = path_beside(recipe);
  return path.empty() ? std::nullopt : std::optional(model_config_of(path));
}

void set_vocab(Recipe& recipe, int64_t tokenizer_vocab) {
  ModelConfig& m = recipe.model;
  if (m.vocab == 0) m.vocab = tokenizer_vocab;
  if (m.vocab < tokenizer_vocab)
    throw UsageError("model.vocab = {} is less than the tokenizer's {} tokens: leave model.vocab out, or raise it",
                     m.vocab, tokenizer_vocab);
  complete(m);
}

}  // namespace weft
