// Megatron-LM's values: words, shares, counts of samples, and arguments that are read together.
#include "weft/plan/imports/megatron_values.h"

namespace weft::plan::megatron {

std::string normal(std::string_view key) {
  if (const size_t dot = key.rfind('.'); dot != key.npos) key.remove_prefix(dot + 1);
  while (key.starts_with('-')) key.remove_prefix(1);
  std::string out(key);
  std::ranges::replace(out, '_', '-');
  return out;
}

void set_swiglu(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, std::string("swiglu"));
}
void set_quick_geglu(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, std::string("geglu_quick"));
}
void set_squared_relu(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, std::string("relu2"));
}
void set_precision(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  if (t.find("fp8-format")) return t.say(Fate::same, "train.precision = \"fp8\" is beside bf16, as fp8-format says");
  t.put(target, normal(entry.key));
}
void take_fp8_format(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string format = t.text_of(entry);
  if (format != "e4m3" && format != "hybrid") t.reject(entry, "e4m3 or hybrid");
  t.put(target, std::string("fp8"));
  t.add(kOneFp8);
}

void set_short_gradients(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  take_bf16_gradients(t, target, t.is_on("bf16"));
}
void take_gradients(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string type = t.text_of(entry);
  if (type == "fp32") return t.say(Fate::same, kWholeSums);
  if (type != "bf16") t.reject(entry, "fp32 or bf16");
  take_bf16_gradients(t, target, t.is_on("bf16"));
}

constexpr Words kPositions = {{{"rope", "rope"}, {"learned_absolute", "learned"}}};
constexpr Words kNorms = {{{"RMSNorm", "rmsnorm"}, {"LayerNorm", "layernorm"}}};
constexpr Words kDecays = {{{"cosine", "cosine"}, {"linear", "linear"}, {"constant", "constant"}, {"WSD", "wsd"}}};
constexpr Words kOptimizers = {
    {{"adam", "adamw"}, {"adamw", "adamw"}, {"sgd", "sgd"}, {"lion", "lion"}, {"muon", "muon"}}};
constexpr Words kContextModes = {{{"p2p", "ring"}, {"all_gather", "allgather"}, {"a2a", "ulysses"}}};
constexpr Words kScores = {{{"softmax", "softmax"}, {"sigmoid", "sigmoid"}}};

void take_position(Translation& t, const ConfigEntry& e, std::string_view to) { take_word(t, e, to, kPositions); }
void take_norm(Translation& t, const ConfigEntry& e, std::string_view to) { take_word(t, e, to, kNorms); }
void take_decay(Translation& t, const ConfigEntry& e, std::string_view to) { take_word(t, e, to, kDecays); }
void take_min_lr(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (t.text("lr-decay-style") == "constant") return t.say(Fate::not_needed, "the rate is constant");
  t.put(target, t.number_of(entry));
}
void take_optimizer(Translation& t, const ConfigEntry& e, std::string_view to) { take_word(t, e, to, kOptimizers); }
void take_context_mode(Translation& t, const ConfigEntry& e, std::string_view to) {
  take_word(t, e, to, kContextModes);
}
void take_score(Translation& t, const ConfigEntry& e, std::string_view to) { take_word(t, e, to, kScores); }

void take_rotary_percent(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const double share = t.number_of(entry);
  if (share == 1) return t.say(Fate::same, "all of a head turns");
  const double head =
      t.number("kv-channels").value_or(t.number_or("hidden-size", 0) / t.number_or("num-attention-heads", 1));
  t.put(target, whole_near(share * head));
}
void take_groups(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.is_on("group-query-attention") && t.find("group-query-attention"))
    return t.say(Fate::not_needed, "group-query-attention is off");
  t.put(target, t.whole_of(entry));
}
void take_attention_dropout(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const double share = t.number_of(entry);
  if (share == t.number_or("hidden-dropout", 0.1)) return t.put(target, share);
  t.say(Fate::no_counterpart, "model.dropout is one for all; that of the residual stream counts");
}
void take_init(Translation& t, const ConfigEntry& entry, std::string_view) {
  if (t.number_of(entry) == 0.02) return t.say(Fate::same, "weights begin so");
  t.say(Fate::no_counterpart, "weights begin with a standard deviation of 0.02");
}

// Counts of rows become steps.
static double global_batch(Translation& t, const ConfigEntry& entry) {
  const auto rows = t.number("global-batch-size");
  if (!rows || *rows < 1) t.reject(entry, "given as steps, since the file has no --global-batch-size");
  return *rows;
}
void take_samples(Translation& t, const ConfigEntry& entry, std::string_view target) {
  t.put(target, whole_near(t.number_of(entry) / global_batch(t, entry)));
}
void take_warmup_share(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const auto steps = t.number("lr-decay-iters") ? t.number("lr-decay-iters") : t.number("train-iters");
  if (!steps) return t.say(Fate::open, "a share of steps that the file does not say: write optimizer.warmup");
  t.put(target, whole_near(t.number_of(entry) * *steps));
}
void take_decay_length(Translation& t, const ConfigEntry& entry, std::string_view) {
  const bool is_samples = normal(entry.key).ends_with("samples");
  const auto run = t.number(is_samples ? "train-samples" : "train-iters");
  if (!run || *run == t.number_of(entry)) return t.say(Fate::same, "the decay ends with the run");
  t.say(Fate::no_counterpart, "the decay ends with the run, at train.steps");
}

void take_virtual_stage(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const int64_t layers = t.whole_of(entry);
  const auto pp = t.whole_or("pipeline-model-parallel-size", 1);
  const auto all = t.whole_or("num-layers", 0);
  if (layers < 1 || pp < 1 || all < layers * pp) t.reject(entry, "at most the layers of a stage");
  if (all / pp / layers < 2) return t.say(Fate::same, "a stage a rank");
  t.put("mesh.schedule", std::string("interleaved"));
  t.put(target, all / pp / layers);
}
void take_virtual_stages(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const int64_t stages = t.whole_of(entry);
  if (stages < 2) return t.say(Fate::same, "a stage a rank");
  t.put("mesh.schedule", std::string("interleaved"));
  t.put(target, stages);
}

static bool is_fsdp(const Translation& t) {
  return t.is_on("use-torch-fsdp2") || t.is_on("use-megatron-fsdp") || t.is_on("use-custom-fsdp");
}
void take_sharded_optimizer(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  if (is_fsdp(t) && t.find("data-parallel-sharding-strategy"))
    return t.say(Fate::not_needed, "the sharding strategy says it");
  if (t.is_on("use-torch-fsdp2")) return t.say(Fate::not_needed, "with FSDP all is sharded");
  t.put(target, int64_t(1));
}
void take_torch_fsdp(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, int64_t(3));
}
void take_strategy(Translation& t, const ConfigEntry& entry, std::string_view target) {
  constexpr std::string_view kStrategies[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
  const auto found = std::ranges::find(kStrategies, t.text_of(entry));
  if (found == std::end(kStrategies)) t.reject(entry, "no_shard, optim, optim_grads or optim_grads_params");
  t.put(target, int64_t(found - kStrategies));
}

void take_recompute(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string what = t.text_of(entry);
  if (what == "selective") {
    const std::string modules = t.text("recompute-modules").value_or("core_attn");
    if (modules.find("mlp") != modules.npos || modules.find("moe") != modules.npos)
      return t.put(target, std::string("mlp"));
    return t.say(Fate::same, "scores of attention are not kept");
  }
  if (what != "full") t.reject(entry, "full or selective");
  const auto layers = t.whole_or("num-layers", 0), some = t.whole_or("recompute-num-layers", 1);
  const auto pp = t.whole_or("pipeline-model-parallel-size", 1);
  const int64_t of_stage = pp > 0 ? layers / pp : 0;
  if (t.text("recompute-method") == "block" && some > 0 && of_stage >= 2 * some)
    return t.put(target, fmt::format("every:{}", of_stage / some));
  t.put(target, std::string("block"));
}
void take_old_recompute(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  if (normal(entry.key) == "recompute-activations") return t.say(Fate::same, "scores of attention are not kept");
  t.put(target, std::string("block"));
}

void take_layer_kinds(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string kinds = t.text_of(entry);
  if (kinds == "1") return t.say(Fate::same, "every layer has experts");
  constexpr std::string_view kDense = "([0]*";
  const size_t begin = kinds.find(kDense), end = kinds.find("+[1]*");
  const Toml::Scalar count = begin == 0 && end != kinds.npos
                                 ? scalar_of(kinds.substr(kDense.size(), end - kDense.size()))
                                 : Toml::Scalar(std::string());
  const auto* layers = std::get_if<int64_t>(&count);
  if (!layers) return t.say(Fate::no_counterpart, "write model.first_dense_layers or model.expert_layers");
  t.put(target, *layers);
}
void take_shared_experts(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const int64_t width = t.whole_of(entry);
  const auto of_one = t.whole_or("moe-ffn-hidden-size", t.whole_or("ffn-hidden-size", 0));
  if (of_one < 1 || width % of_one != 0)
    return t.say(Fate::no_counterpart, "shared experts are as wide as the others: write model.shared_experts");
  t.put(target, width / of_one);
}
void take_balance(Translation& t, const ConfigEntry& entry, std::string_view) {
  const std::string kind = t.text_of(entry);
  if (kind == "aux_loss" || kind == "none") return t.say(Fate::same, "model.aux_loss balances");
  t.say(Fate::no_counterpart, "a loss over a micro-batch balances: write model.aux_loss or model.router_bias_rate");
}
void take_query_dim(Translation& t, const ConfigEntry& entry, std::string_view target) {
  t.put(target, t.whole_of(entry) + t.whole_or("qk-pos-emb-head-dim", 64));
}
void take_rope_scaling(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, std::string("llama3"));
  t.put("model.rope_factor", t.number_or("rope-scaling-factor", 8));
  t.put("model.rope_original_context", int64_t(8192));
}

void take_split(Translation& t, const ConfigEntry& entry, std::string_view target) {
  std::vector<double> parts;
  const std::string text = t.text_of(entry);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const ConfigEntry part{
        .key = entry.key, .value = text.substr(begin, end - begin), .text = text, .line = entry.line};
    parts.push_back(t.number_of(part));
    begin = end + 1;
  }
  double sum = 0;
  for (const double part : parts) sum += part;
  if (parts.size() < 2 || !(sum > 0) || parts[1] < 0 || parts[1] > 0.9 * sum) t.reject(entry, "shares, as in 99,1,0");
  t.put(target, parts[1] / sum);
}
void take_vocabulary_file(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string path = t.text_of(entry);
  const size_t slash = path.rfind('/');
  t.put(target, slash == path.npos ? std::string(".") : path.substr(0, slash));
  t.add("vocab.json and merges.txt lie there");
}
void take_data(Translation& t, const ConfigEntry&, std::string_view) {
  t.say(Fate::no_counterpart,
        "indexed token files are not read: write the text, or token files of weft, as data.train");
}
void take_load(Translation& t, const ConfigEntry& entry, std::string_view) {
  if (t.text("save") == t.text_of(entry)) return t.say(Fate::same, "a run goes on from its newest checkpoint");
  t.say(Fate::no_counterpart, "Megatron-LM's checkpoints are not read: write model.path of a Hugging Face folder");
}
void take_timeout(Translation& t, const ConfigEntry& entry, std::string_view target) {
  t.put(target, whole_near(60 * t.number_of(entry)));
}
void take_offload(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, std::string("host"));
}
void take_activation_name(Translation& t, const ConfigEntry& entry, std::string_view target) {
  static constexpr Words kNames = {
      {{"swiglu", "swiglu"}, {"geglu", "geglu"}, {"gelu", "gelu_tanh"}, {"silu", "silu"}, {"relu", "relu"}}};
  take_word(t, entry, target, kNames);
}

}  // namespace weft::plan::megatron
