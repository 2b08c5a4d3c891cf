// Megatron-LM's arguments, out of a launch script, a file or its YAML. Names and defaults:
// megatron/training/arguments.py and the configurations that it is made of, from core 0.9 on.
#include "weft/plan/imports/translation.h"

namespace weft::plan {
namespace {

constexpr std::string_view kLauncher = "weft starts its ranks itself, or under mpirun and srun; see --hosts";
constexpr std::string_view kFused = "weft's kernels are fused where that is faster";
constexpr std::string_view kOwnScale = "the loss scale begins and moves by itself";
constexpr std::string_view kNoFp8 = "weft computes in bf16, fp16 or fp32; weft plan --fp8 says what it would gain";
constexpr std::string_view kLogs = "metrics.jsonl, TensorBoard and log.trace_steps have it";
constexpr std::string_view kNoWandb = "weft writes metrics.jsonl and TensorBoard files: see [log]";
constexpr std::string_view kCheckpoints = "checkpoints are whole, checked, and read by any mesh";
constexpr std::string_view kOverlap = "collectives run beside what computes";
constexpr std::string_view kOther = "it belongs to another kind of model or run than a decoder's training";
constexpr std::string_view kRoutes = "every rank sends each token straight to its experts";
constexpr std::string_view kPlaced =
    "layers are placed so that the slowest stage is as fast as can be: see mesh.layers_per_stage";

// "--num-layers", "num_layers" and "language_model.num_layers" are one argument.
std::string normal(std::string_view key) {
  if (const size_t dot = key.rfind('.'); dot != key.npos) key.remove_prefix(dot + 1);
  while (key.starts_with('-')) key.remove_prefix(1);
  std::string out(key);
  std::ranges::replace(out, '_', '-');
  return out;
}

// Flags: what they set when they are given.
template <bool value>
void set_flag(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, value);
}
void set_swiglu(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, std::string("swiglu"));
}
void set_geglu(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, std::string("geglu"));
}
void set_precision(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, normal(entry.key));
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
double global_batch(Translation& t, const ConfigEntry& entry) {
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

bool is_fsdp(const Translation& t) {
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
  if (!layers) return t.say(Fate::no_counterpart, "dense layers come first: write model.first_dense_layers");
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

constexpr Rule kRules[] = {
    whole("num-layers", "model.layers"),
    whole("hidden-size", "model.hidden"),
    whole("ffn-hidden-size", "model.ffn"),
    whole("num-attention-heads", "model.heads"),
    taken("num-query-groups", "model.kv_heads", take_groups),
    same("group-query-attention", "model.kv_heads says it"),
    whole("kv-channels", "model.head_dim"),
    whole("max-position-embeddings", "model.context"),
    whole("vocab-size", "model.vocab"),
    whole("padded-vocab-size", "model.vocab"),
    not_needed("make-vocab-size-divisible-by", "the vocabulary is cut as it is"),
    not_needed("vocab-extra-ids", "the tokenizer's file has all tokens"),
    taken("position-embedding-type", "model.position", take_position),
    same("use-rotary-position-embeddings", "model.position says it"),
    number("rotary-base", "model.rope_theta"),
    taken("rotary-percent", "model.rotary_dim", take_rotary_percent),
    taken("use-rope-scaling", "model.rope_scaling", take_rope_scaling),
    same("rope-scaling-factor", "model.rope_factor has it"),
    no_counterpart("rotary-interleaved", "halves of a head turn together; weights can be reordered on import"),
    no_counterpart("rotary-seq-len-interpolation-factor", "write model.rope_scaling = \"linear\" and rope_factor"),
    no_counterpart("no-position-embedding", "positions are rope or learned"),
    taken("normalization", "model.norm", take_norm),
    number("norm-epsilon", "model.norm_eps"),
    number("layernorm-epsilon", "model.norm_eps"),
    taken("apply-layernorm-1p", "model.norm_offset", set_flag<true>),
    taken("layernorm-zero-centered-gamma", "model.norm_offset", set_flag<true>),
    no_counterpart("apply-residual-connection-post-layernorm", "see model.block for where norms may stand"),
    taken("swiglu", "model.activation", set_swiglu),
    taken("quick-geglu", "model.activation", set_geglu),
    taken("activation-func", "model.activation", take_activation_name),
    same("gated-linear-unit", "model.activation says it"),
    same("openai-gelu", "gelu_tanh is the formula"),
    no_counterpart("squared-relu", "write another model.activation"),
    taken("untie-embeddings-and-output-weights", "model.tie_embeddings", set_flag<false>),
    taken("disable-bias-linear", "model.bias", set_flag<false>),
    flag("add-bias-linear", "model.bias"),
    taken("add-qkv-bias", "model.qkv_bias", set_flag<true>),
    taken("qk-layernorm", "model.qk_norm", set_flag<true>),
    number("hidden-dropout", "model.dropout"),
    taken("attention-dropout", "model.dropout", take_attention_dropout),
    taken("init-method-std", "", take_init),
    no_counterpart("init-method-xavier-uniform", "weights begin normally distributed"),
    no_counterpart("window-size", "write model.window"),
    no_counterpart("window-attn-skip-freq", "write model.global_every"),
    no_counterpart("mtp-*", "weft predicts one token"),
    no_counterpart("use-mup", "rates are the same for all widths"),
    no_counterpart("mup-*", "rates are the same for all widths"),

    whole("micro-batch-size", "train.micro_batch"),
    whole("batch-size", "train.micro_batch"),
    whole("global-batch-size", "train.global_batch"),
    no_counterpart("rampup-batch-size", "a run has one train.global_batch"),
    no_counterpart("step-batch-size-schedule", "a run has one train.global_batch"),
    whole("seq-length", "train.seq_len"),
    whole("encoder-seq-length", "train.seq_len"),
    whole("train-iters", "train.steps"),
    taken("train-samples", "train.steps", take_samples),
    whole("seed", "train.seed"),
    taken("bf16", "train.precision", set_precision),
    taken("fp16", "train.precision", set_precision),
    same("accumulate-allreduce-grads-in-fp32", "gradients are summed in fp32"),
    same("attention-softmax-in-fp32", "softmax is computed in fp32"),
    no_counterpart("grad-reduce-in-bf16", "gradients are summed in fp32"),
    no_counterpart("fp32-residual-connection", "the residual stream is of train.precision"),
    not_needed("apply-query-key-layer-scaling", "softmax is computed in fp32"),
    same("fp16-lm-cross-entropy", "the loss is computed in fp32"),
    no_counterpart("fp8*", kNoFp8),
    no_counterpart("fp4*", kNoFp8),
    no_counterpart("first-last-layers-bf16", kNoFp8),
    not_needed("loss-scale", kOwnScale),
    not_needed("initial-loss-scale", kOwnScale),
    not_needed("min-loss-scale", kOwnScale),
    not_needed("loss-scale-window", kOwnScale),
    not_needed("hysteresis", kOwnScale),

    taken("optimizer", "optimizer.name", take_optimizer),
    number("lr", "optimizer.lr"),
    number("min-lr", "optimizer.min_lr"),
    taken("lr-decay-style", "optimizer.schedule", take_decay),
    taken("lr-decay-iters", "", take_decay_length),
    taken("lr-decay-samples", "", take_decay_length),
    whole("lr-warmup-iters", "optimizer.warmup"),
    taken("lr-warmup-samples", "optimizer.warmup", take_samples),
    taken("lr-warmup-fraction", "optimizer.warmup", take_warmup_share),
    no_counterpart("lr-warmup-init", "warm-up begins at 0"),
    whole("lr-wsd-decay-iters", "optimizer.decay_steps"),
    taken("lr-wsd-decay-samples", "optimizer.decay_steps", take_samples),
    no_counterpart("lr-wsd-decay-style", "wsd ends linearly"),
    no_counterpart("decoupled-lr", "all weights have one rate"),
    no_counterpart("decoupled-min-lr", "all weights have one rate"),
    number("weight-decay", "optimizer.weight_decay"),
    no_counterpart("start-weight-decay", "weight decay is constant"),
    no_counterpart("end-weight-decay", "weight decay is constant"),
    not_needed("weight-decay-incr-style", "weight decay is constant"),
    taken("adam-beta1", "optimizer.betas", take_beta),
    taken("adam-beta2", "optimizer.betas", take_beta),
    number("adam-eps", "optimizer.eps"),
    number("sgd-momentum", "optimizer.momentum"),
    number("muon-momentum", "optimizer.momentum"),
    whole("muon-num-ns-steps", "optimizer.newton_schulz_steps"),
    no_counterpart("muon-*", "weft's muon has no such option"),
    number("clip-grad", "optimizer.clip"),
    not_needed("override-opt*", "a recipe counts over a checkpoint"),
    not_needed("use-checkpoint-opt*", "a recipe counts over a checkpoint"),
    taken("optimizer-cpu-offload", "mesh.offload_optimizer", take_offload),
    no_counterpart("optimizer-offload-fraction", "all states are offloaded, or none"),
    no_counterpart("use-precision-aware-optimizer", "optimizer.name = \"adamw8bit\" has moments of 8 bits"),
    no_counterpart("main-*-dtype", "masters and gradients are fp32"),
    no_counterpart("exp-avg-*", "optimizer.name = \"adamw8bit\" has moments of 8 bits"),

    whole("tensor-model-parallel-size", "mesh.tp"),
    whole("model-parallel-size", "mesh.tp"),
    whole("pipeline-model-parallel-size", "mesh.pp"),
    whole("context-parallel-size", "mesh.cp"),
    whole("expert-model-parallel-size", "mesh.ep"),
    no_counterpart("expert-tensor-parallel-size", "experts are cut by mesh.tp as other layers are"),
    taken("cp-comm-type", "mesh.cp_mode", take_context_mode),
    no_counterpart("hierarchical-context-parallel-sizes", "write one mesh.cp_mode"),
    taken("num-layers-per-virtual-pipeline-stage", "mesh.virtual_stages", take_virtual_stage),
    taken("num-virtual-stages-per-pipeline-rank", "mesh.virtual_stages", take_virtual_stages),
    taken("virtual-pipeline-model-parallel-size", "mesh.virtual_stages", take_virtual_stages),
    not_needed("microbatch-group-size-per-v*", "the schedule says the order"),
    not_needed("decoder-first-pipeline-num-layers", kPlaced),
    not_needed("decoder-last-pipeline-num-layers", kPlaced),
    not_needed("num-layers-in-first-pipeline-stage", kPlaced),
    not_needed("num-layers-in-last-pipeline-stage", kPlaced),
    not_needed("account-for-*", kPlaced),
    not_needed("pipeline-model-parallel-layout", kPlaced),
    not_needed("standalone-embedding-stage", kPlaced),
    taken("sequence-parallel", "mesh.sequence_parallel", set_flag<true>),
    taken("use-distributed-optimizer", "mesh.zero", take_sharded_optimizer),
    taken("data-parallel-sharding-strategy", "mesh.zero", take_strategy),
    taken("use-torch-fsdp2", "mesh.zero", take_torch_fsdp),
    same("use-megatron-fsdp", "data-parallel-sharding-strategy says what is sharded"),
    same("use-custom-fsdp", "data-parallel-sharding-strategy says what is sharded"),
    taken("torch-fsdp2-no-reshard-after-forward", "mesh.reshard_after_forward", set_flag<false>),
    not_needed("megatron-fsdp-*", "weft's sharding has no such option"),
    not_needed("fsdp-*", "weft's sharding has no such option"),
    whole("num-distributed-optimizer-instances", "mesh.hsdp"),
    taken("recompute-granularity", "mesh.recompute", take_recompute),
    same("recompute-method", "mesh.recompute says it"),
    same("recompute-num-layers", "mesh.recompute says it"),
    same("recompute-modules", "mesh.recompute says it"),
    taken("recompute-activations", "mesh.recompute", take_old_recompute),
    taken("checkpoint-activations", "mesh.recompute", take_old_recompute),
    no_counterpart("distribute-saved-activations", "mesh.sequence_parallel cuts what is kept"),
    no_counterpart("cpu-offloading*", "write mesh.offload_activations = \"host\" beside mesh.recompute = \"block\""),
    no_counterpart("fine-grained-*", "write mesh.offload_activations = \"host\" beside mesh.recompute = \"block\""),
    taken("distributed-timeout-minutes", "mesh.timeout_s", take_timeout),
    same("overlap-*", kOverlap),
    same("no-overlap-p2p-communication", "the schedule says when messages travel"),
    same("tp-comm-*", kOverlap),
    same("disable-tp-comm-*", kOverlap),
    same("no-async-tensor-model-parallel-allreduce", kOverlap),
    same("defer-embedding-wgrad-compute", "weight halves of backwards wait where that helps"),
    same("delay-wgrad-compute", "weight halves of backwards wait where that helps"),
    not_needed("wgrad-deferral-limit", "weight halves of backwards wait where that helps"),
    not_needed("ddp-*", "buckets follow the blocks"),
    not_needed("no-align-*", "buckets follow the blocks"),
    not_needed("no-scatter-gather-tensors-in-pipeline", "messages between stages are sent as they are cut"),
    not_needed("use-ring-exchange-p2p", "the schedule says when messages travel"),
    not_needed("use-tp-pp-dp-mapping", "tensor-parallel ranks are neighbours"),
    not_needed("lazy-mpu-init", kLauncher),
    not_needed("distributed-backend", kLauncher),
    not_needed("local-rank", kLauncher),
    not_needed("nccl-*", "threads, MPI or the device's library carry collectives"),
    not_needed("use-nccl-ub", "threads, MPI or the device's library carry collectives"),
    not_needed("use-sharp", "threads, MPI or the device's library carry collectives"),

    whole("num-experts", "model.experts"),
    whole("num-moe-experts", "model.experts"),
    whole("moe-router-topk", "model.experts_per_token"),
    whole("moe-ffn-hidden-size", "model.expert_ffn"),
    taken("moe-shared-expert-intermediate-size", "model.shared_experts", take_shared_experts),
    taken("moe-layer-freq", "model.first_dense_layers", take_layer_kinds),
    taken("moe-router-load-balancing-type", "", take_balance),
    number("moe-aux-loss-coeff", "model.aux_loss"),
    number("moe-z-loss-coeff", "model.z_loss"),
    taken("moe-router-score-function", "model.router", take_score),
    taken("moe-router-pre-softmax", "model.norm_topk", set_flag<false>),
    taken("moe-router-enable-expert-bias", "model.router_bias", set_flag<true>),
    number("moe-router-bias-update-rate", "model.router_bias_rate"),
    whole("moe-router-num-groups", "model.expert_groups"),
    whole("moe-router-group-topk", "model.groups_per_token"),
    number("moe-router-topk-scaling-factor", "model.routed_scale"),
    number("moe-expert-capacity-factor", "model.capacity_factor"),
    same("moe-router-dtype", "routers compute in fp32"),
    no_counterpart("moe-input-jitter-eps", "routers see what the layer sees"),
    same("moe-pad-expert-input-to-capacity", "experts see as many rows as they have"),
    same("moe-token-drop-policy", "what a full expert drops came with the smallest weights"),
    same("moe-grouped-gemm", "experts are multiplied together"),
    same("moe-use-legacy-grouped-gemm", "experts are multiplied together"),
    same("moe-permute-fusion", kFused),
    same("moe-router-fusion", kFused),
    same("moe-shared-expert-overlap", kOverlap),
    not_needed("moe-token-dispatcher-type", kRoutes),
    not_needed("moe-enable-deepep", kRoutes),
    not_needed("moe-flex-dispatcher-*", kRoutes),
    not_needed("moe-per-layer-logging", kLogs),
    no_counterpart("moe-layer-recompute", "write mesh.recompute = \"mlp\""),
    no_counterpart("moe-extended-tp", "write mesh.ep"),
    no_counterpart("moe-*", "weft's mixtures of experts have no such option"),
    same("multi-latent-attention", "model.kv_rank says it"),
    whole("q-lora-rank", "model.query_rank"),
    whole("kv-lora-rank", "model.kv_rank"),
    taken("qk-head-dim", "model.head_dim", take_query_dim),
    whole("qk-pos-emb-head-dim", "model.rotary_dim"),
    whole("v-head-dim", "model.value_dim"),
    no_counterpart("rotary-scaling-factor", "write model.rope_scaling = \"yarn\" and rope_factor"),
    no_counterpart("rope-type", "write model.rope_scaling = \"yarn\" and rope_factor"),
    number("mscale", "model.rope_mscale"),
    number("mscale-all-dim", "model.rope_mscale_all"),

    taken("data-path", "data.train", take_data),
    taken("train-data-path", "data.train", take_data),
    taken("valid-data-path", "data.valid", take_data),
    taken("test-data-path", "data.valid", take_data),
    taken("data-args-path", "data.train", take_data),
    taken("per-split-data-args-path", "data.train", take_data),
    taken("split", "data.valid_fraction", take_split),
    text("data-cache-path", "data.cache_dir"),
    no_counterpart("mock-data", "write some text as data.train"),
    text("tokenizer-model", "data.tokenizer"),
    not_needed("tokenizer-type", "the tokenizer's file says it"),
    taken("vocab-file", "data.tokenizer", take_vocabulary_file),
    same("merge-file", "it lies beside the vocabulary"),
    not_needed("tiktoken-*", "the tokenizer's file says it"),
    not_needed("tokenizer-*", "the tokenizer's file says it"),
    not_needed("num-workers", "batches are cut out of mapped files"),
    not_needed("dataloader-*", "rows are drawn by seed and step"),
    not_needed("no-mmap-bin-files", "token files are mapped"),
    not_needed("no-create-attention-mask-in-dataloader", "attention knows its spans"),
    not_needed("num-dataset-builder-threads", "batches are cut out of mapped files"),
    taken("reset-attention-mask", "data.documents", set_flag<true>),
    same("reset-position-ids", "see data.documents"),
    no_counterpart("eod-mask-loss", "the end of a document is learned"),
    same("calculate-per-token-loss", "the loss is the mean over all targets of a step"),
    text("save", "checkpoint.dir"),
    taken("load", "checkpoint.resume", take_load),
    whole("save-interval", "checkpoint.every"),
    no_counterpart("pretrained-checkpoint", "write model.path of a Hugging Face folder"),
    no_counterpart("finetune", "write model.path of a Hugging Face folder"),
    same("async-save", "files are written while training goes on"),
    not_needed("save-retain-interval", "checkpoint.keep says how many stay"),
    not_needed("no-save-*", kCheckpoints),
    not_needed("no-load-*", "checkpoint.resume = \"none\", or model.path, begins anew"),
    not_needed("ckpt-*", kCheckpoints),
    not_needed("use-dist-ckpt", kCheckpoints),
    not_needed("dist-ckpt-*", kCheckpoints),
    not_needed("auto-detect-ckpt-format", kCheckpoints),
    not_needed("no-ckpt-*", kCheckpoints),
    not_needed("non-persistent-*", "checkpoint.every and checkpoint.keep say it"),
    not_needed("use-*-from-checkpoint-args", kCheckpoints),
    not_needed("use-checkpoint-args", kCheckpoints),
    not_needed("use-persistent-ckpt-worker", kCheckpoints),
    not_needed("exit-on-missing-checkpoint", "write checkpoint.resume = a folder"),
    whole("eval-interval", "train.eval_every"),
    whole("eval-iters", "train.eval_batches"),
    no_counterpart("skip-train", "weft eval MODEL --data PATH evaluates"),

    text("tensorboard-dir", "log.dir"),
    not_needed("tensorboard-*", kLogs),
    not_needed("log-*", kLogs),
    not_needed("no-log-*", kLogs),
    not_needed("timing-*", kLogs),
    not_needed("no-barrier-with-level-1-timing", kLogs),
    not_needed("logging-level", kLogs),
    not_needed("profile*", "write log.trace_steps = [first, last]"),
    not_needed("use-pytorch-profiler", "write log.trace_steps = [first, last]"),
    not_needed("record-memory-history", "weft plan shows memory block by block"),
    not_needed("memory-snapshot-path", "weft plan shows memory block by block"),
    no_counterpart("wandb-*", kNoWandb),
    no_counterpart("one-logger*", kNoWandb),
    not_needed("no-one-logger", kNoWandb),
    no_counterpart("app-tag-*", kNoWandb),
    not_needed("config-logger-dir", "log.dir has the recipe as resolved"),
    no_counterpart("exit-interval", "write train.steps"),
    no_counterpart("exit-duration-in-mins", "checkpoint.every bounds what a job's end loses"),
    not_needed("exit-signal-*", "checkpoints survive a kill at any moment"),
    same("no-check-for-nan-in-loss-and-grad", "train.on_not_finite says what happens"),
    same("check-for-*", "train.on_not_finite says what happens"),
    not_needed("rerun-*", "weft verify proves a mesh"),
    not_needed("error-injection-*", "weft verify proves a mesh"),
    not_needed("result-rejected-*", "weft verify proves a mesh"),
    same("deterministic-mode", "a run is a function of its recipe and mesh"),
    not_needed("check-weight-hash-*", "weft verify proves a mesh"),
    not_needed("straggler-*", kLogs),
    not_needed("disable-straggler-on-startup", kLogs),
    not_needed("inprocess-*", "weft train --restarts restarts a dead job"),
    not_needed("enable-ft-package", "weft train --restarts restarts a dead job"),
    not_needed("calc-ft-timeouts", "weft train --restarts restarts a dead job"),
    not_needed("ft-*", "weft train --restarts restarts a dead job"),
    not_needed("adlr-autoresume*", "weft train --restarts restarts a dead job"),

    same("use-flash-attn", "attention never holds all scores"),
    same("attention-backend", "attention never holds all scores"),
    not_needed("flash-attention-version", "attention never holds all scores"),
    same("cross-entropy-*", kFused),
    same("no-masked-softmax-fusion", kFused),
    same("no-bias-*", kFused),
    same("no-rope-fusion", kFused),
    same("no-gradient-accumulation-fusion", kFused),
    same("no-persist-layer-norm", kFused),
    not_needed("transformer-impl", "there is one implementation"),
    not_needed("use-mcore-models", "there is one implementation"),
    not_needed("use-legacy-models", "there is one implementation"),
    not_needed("spec", "there is one implementation"),
    not_needed("use-te-*", "there is one implementation"),
    not_needed("te-*", "there is one implementation"),
    not_needed("enable-experimental", "there is one implementation"),
    not_needed("no-clone-scatter-output-in-embedding", "there is one implementation"),
    not_needed("cuda-graph-*", "weft has no graphs to record"),
    not_needed("enable-cuda-graph", "weft has no graphs to record"),
    not_needed("external-cuda-graph", "weft has no graphs to record"),
    not_needed("manual-gc*", "there is no garbage"),
    not_needed("no-manual-gc-eval", "there is no garbage"),
    not_needed("empty-unused-memory-level", "the allocator keeps what will be used again"),
    not_needed("use-cpu-initialization", "weights begin as a function of seed and name"),
    not_needed("no-initialization", "weights begin as a function of seed and name"),
    not_needed("data-parallel-random-init", "weights begin as a function of seed and name"),
    not_needed("init-model-with-meta-device", "weights begin as a function of seed and name"),
    not_needed("train-sync-interval", "ranks wait only for what they need"),
    not_needed("test-mode", "weft train needs no such mode"),
    not_needed("yaml-cfg", "import that file instead"),
    not_needed("no-weight-decay-cond-type", "weight decay is of matrices only"),
    same("apply-wd-to-qk-layernorm", "weight decay is of matrices only"),
    no_counterpart("rl-*", kOther),
    no_counterpart("grpo-*", kOther),
    no_counterpart("langrl-*", kOther),
    no_counterpart("perform-rl-step", kOther),
    no_counterpart("retro-*", kOther),
    no_counterpart("bert-*", kOther),
    no_counterpart("dino-*", kOther),
    no_counterpart("ict-*", kOther),
    no_counterpart("vision-*", kOther),
    no_counterpart("swin-*", kOther),
    no_counterpart("biencoder-*", kOther),
    no_counterpart("mamba-*", kOther),
    no_counterpart("hybrid-*", kOther),
    no_counterpart("inference-*", kOther),
    no_counterpart("heterogeneous-*", kOther),
    no_counterpart("encoder-*", kOther),
    no_counterpart("decoder-*", kOther),
    no_counterpart("fim-*", kOther),
    no_counterpart("sft*", "conversations train by data.format = \"chat\"; see docs/fine-tuning.md"),

    not_needed("nproc-per-node", "the number of devices is the mesh's"),
    not_needed("nnodes", "the number of devices is the mesh's"),
    not_needed("node-rank", kLauncher),
    not_needed("master-addr", kLauncher),
    not_needed("master-port", kLauncher),
    not_needed("rdzv-*", kLauncher),
    not_needed("max-restarts", "weft train --restarts N"),
    not_needed("standalone", kLauncher),
    not_needed("tee", kLauncher),
    not_needed("log-dir", kLauncher),
    not_needed("redirects", kLauncher),
    not_needed("role", kLauncher),
    not_needed("module", kLauncher),
};

void finish(Translation& t) {
  constexpr std::string_view kDefault = "Megatron-LM's default";
  const auto devices = t.number("nproc-per-node");
  std::optional<int64_t> world;
  const bool has_machines = !t.is_given("nnodes") || t.number("nnodes");
  if (devices && has_machines) world = whole_near(*devices * t.number_or("nnodes", 1));
  t.settle_data_parallel(world);
  const bool is_llama = t.text("normalization") == "RMSNorm" || t.text("position-embedding-type") == "rope";
  if (t.has("model.layers") || t.has("model.hidden")) {
    t.imply("model.family", std::string(is_llama ? "llama" : "gpt2"),
            "the nearest family; what differs is written out");
    const bool has_rope = t.is_on("use-rotary-position-embeddings") || t.is_on("multi-latent-attention");
    t.imply("model.position", std::string(has_rope ? "rope" : "learned"), kDefault);
    t.imply("model.norm", std::string("layernorm"), kDefault);
    t.imply("model.activation", std::string("gelu_tanh"), kDefault);
    t.imply("model.bias", true, kDefault);
    t.imply("model.tie_embeddings", true, kDefault);
    t.imply("model.dropout", 0.1, kDefault);
    if (const auto hidden = t.number("hidden-size"); hidden) {
      const auto wide = whole_near(4 * *hidden);
      t.imply("model.ffn", t.is_on("swiglu") ? wide * 2 / 3 / 64 * 64 : wide, kDefault);
    }
  }
  if (t.is_on("multi-latent-attention")) {
    t.imply("model.kv_rank", int64_t(512), kDefault);
    t.imply("model.rotary_dim", int64_t(64), kDefault);
    t.imply("model.head_dim", int64_t(192), kDefault);
    t.imply("model.value_dim", int64_t(128), kDefault);
  }
  t.imply("train.precision", std::string("fp32"), kDefault);
  const std::string optimizer = t.word_in_recipe("optimizer.name");
  if (optimizer.empty() || optimizer == "adamw")
    t.imply("optimizer.betas", pair_of(t.number_or("adam-beta1", 0.9), t.number_or("adam-beta2", 0.999)), kDefault);
  t.imply("optimizer.weight_decay", 0.01, kDefault);
  t.imply("optimizer.schedule", std::string("linear"), kDefault);
  t.imply("optimizer.min_lr", 0.0, kDefault);
  t.imply("optimizer.warmup", int64_t(0), kDefault);
  if (!t.has("optimizer.lr")) t.open("optimizer.lr", "weft's usual rate stands there");
  if (!t.has("train.steps")) t.open("train.steps", "weft's usual 1000 stand there");
}

}  // namespace

Format megatron_format() { return {ImportKind::megatron, "megatron", "Megatron-LM", kRules, finish, normal}; }

}  // namespace weft::plan
