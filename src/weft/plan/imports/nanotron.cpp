// nanotron's YAML. Names and defaults: src/nanotron/config.
#include "weft/plan/imports/translation.h"

namespace weft::plan {
namespace nanotron {
namespace {

constexpr std::string_view kLogs = "weft writes metrics.jsonl and TensorBoard files: see [log]";
constexpr std::string_view kData = "weft reads texts, conversations and its own token files: write data.train";
constexpr std::string_view kDone = "it says where a run of nanotron stood: weft's checkpoints know";
constexpr std::string_view kTokens = "the tokenizer knows it";
constexpr std::string_view kKernels = "there is one implementation, fused where that is faster";

constexpr Words kEngines = {{{"1f1b", "1f1b"}, {"afab", "gpipe"}}};
constexpr Words kActivations = {
    {{"silu", "swiglu"}, {"gelu", "geglu_exact"}, {"gelu_pytorch_tanh", "geglu"}, {"relu", "reglu"}}};
constexpr Words kPrecisions = {{{"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}}};
constexpr Words kOptimizers = {{{"adamW", "adamw"}, {"sgd", "sgd"}}};

void take_engine(Translation& t, const ConfigEntry& e, std::string_view to) { take_word(t, e, to, kEngines); }
void take_activation(Translation& t, const ConfigEntry& e, std::string_view to) { take_word(t, e, to, kActivations); }
void take_precision(Translation& t, const ConfigEntry& e, std::string_view to) { take_word(t, e, to, kPrecisions); }
void take_optimizer(Translation& t, const ConfigEntry& e, std::string_view to) { take_word(t, e, to, kOptimizers); }

void take_gradients(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (t.flag_of(entry)) return t.say(Fate::same, kWholeSums);
  take_bf16_gradients(t, target, t.text("model.dtype") == "bfloat16");
}
void take_tp_mode(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string mode = t.text_of(entry);
  t.put(target, mode == "REDUCE_SCATTER" || mode == "reduce_scatter");
}
void take_recompute(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, std::string("block"));
}
void take_family(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, std::string(entry.key.find("qwen2") == std::string::npos ? "llama" : "qwen2"));
}
void take_bias(Translation& t, const ConfigEntry& entry, std::string_view target) { t.put(target, t.flag_of(entry)); }
void take_init(Translation& t, const ConfigEntry& entry, std::string_view) {
  if (t.number_of(entry) == 0.02) return t.say(Fate::same, "weights begin so");
  t.say(Fate::no_counterpart, "weights begin with a standard deviation of 0.02");
}
void take_interleaved(Translation& t, const ConfigEntry& entry, std::string_view) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "halves of a head turn together");
  t.say(Fate::no_counterpart, "halves of a head turn together: the same model with its rows in another order");
}
void take_eval_every(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (t.number_of(entry) < 1) return t.say(Fate::same, "no evaluation");
  t.put(target, t.whole_of(entry));
}
void take_decay(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string style = t.text_of(entry);
  const bool is_late = t.number_or("optimizer.learning_rate_scheduler.lr_decay_starting_step", 0) >
                       t.number_or("optimizer.learning_rate_scheduler.lr_warmup_steps", 0) + 1;
  if (style == "linear" || (is_late && style == "1-sqrt")) {
    t.put(target, std::string(is_late ? "wsd" : "linear"));
    if (style == "1-sqrt") t.add("the end of wsd is linear");
  } else if (style == "cosine" && !is_late) {
    t.put(target, std::string("cosine"));
  } else {
    t.say(Fate::no_counterpart, "write optimizer.schedule = \"cosine\", \"linear\", \"wsd\" or \"constant\"");
  }
}
void take_decay_start(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const double warmup = t.number_or("optimizer.learning_rate_scheduler.lr_warmup_steps", 0);
  if (t.number_of(entry) <= warmup + 1) return t.say(Fate::same, "the decay begins after the warm-up");
  const auto steps = t.number("tokens.train_steps");
  if (!steps)
    return t.say(Fate::open, "steps before a run's end, which the file does not say: write optimizer.decay_steps");
  t.put(target, whole_near(*steps - t.number_of(entry)));
}
void take_decay_length(Translation& t, const ConfigEntry& entry, std::string_view) {
  const auto steps = t.number("tokens.train_steps");
  const double begin = t.number("optimizer.learning_rate_scheduler.lr_decay_starting_step")
                           .value_or(t.number_or("optimizer.learning_rate_scheduler.lr_warmup_steps", 0));
  if (!steps || t.number_of(entry) >= *steps - begin - 1) return t.say(Fate::same, "the decay ends with the run");
  t.say(Fate::no_counterpart, "the decay ends with the run, at train.steps");
}
void take_warmup_style(Translation& t, const ConfigEntry& entry, std::string_view) {
  if (t.text_of(entry) == "linear") return t.say(Fate::same, "warm-up is linear");
  t.say(Fate::no_counterpart, "warm-up is linear");
}
void take_clip(Translation& t, const ConfigEntry& entry, std::string_view target) {
  t.put(target, t.number_of(entry));
}
void take_first_stage(Translation& t, const ConfigEntry& entry, std::string_view) {
  if (t.number_of(entry) <= 1) return t.say(Fate::same, "training begins with this data");
  t.say(Fate::no_counterpart, "a run has one data.train: start another with model.path");
}
void take_dispatch(Translation& t, const ConfigEntry&, std::string_view) {
  t.say(Fate::not_needed, "every rank sends each token straight to its experts");
}
void take_shared(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  const auto width = t.whole_or("model.model_config.moe_config.shared_expert_intermediate_size", 5632);
  const auto of_one = t.whole_or("model.model_config.moe_config.moe_intermediate_size", 1408);
  if (of_one < 1 || width % of_one != 0)
    return t.say(Fate::no_counterpart, "shared experts are as wide as the others: write model.shared_experts");
  t.put(target, width / of_one);
}

constexpr Rule kRules[] = {
    whole("parallelism.dp", "mesh.dp"),
    whole("parallelism.tp", "mesh.tp"),
    whole("parallelism.pp", "mesh.pp"),
    whole("parallelism.context_parallel_size", "mesh.cp"),
    whole("parallelism.expert_parallel_size", "mesh.ep"),
    taken("parallelism.pp_engine", "mesh.schedule", take_engine),
    taken("parallelism.tp_mode", "mesh.sequence_parallel", take_tp_mode),
    same("parallelism.tp_linear_async_communication", "collectives run beside what computes"),
    same("parallelism.tp_recompute_allgather", "gathered tokens are not kept"),
    taken("parallelism.recompute_layer", "mesh.recompute", take_recompute),

    whole("tokens.sequence_length", "train.seq_len"),
    whole("tokens.micro_batch_size", "train.micro_batch"),
    whole("tokens.batch_accumulation_per_replica", "train.accumulation"),
    whole("tokens.train_steps", "train.steps"),
    taken("tokens.val_check_interval", "train.eval_every", take_eval_every),
    whole("tokens.limit_val_batches", "train.eval_batches"),
    no_counterpart("tokens.limit_test_batches", "weft eval MODEL --data PATH evaluates"),

    whole("general.seed", "train.seed"),
    not_needed("general.project", "log.dir names the run"),
    not_needed("general.run", "log.dir names the run"),
    not_needed("general.entity", "log.dir names the run"),
    not_needed("general.step", kDone),
    not_needed("general.consumed_train_samples", kDone),
    not_needed("general.benchmark_csv_path", "metrics.jsonl has every step"),
    not_needed("general.ignore_sanity_checks", "weft verify proves a mesh"),

    taken("model.dtype", "train.precision", take_precision),
    not_needed("model.ddp_bucket_cap_mb", "buckets follow the blocks"),
    not_needed("model.make_vocab_size_divisible_by", "the vocabulary is cut as it is"),
    taken("model.init_method.std", "", take_init),
    same("model.init_method.scaling_method", "weights that end a block begin smaller"),
    no_counterpart("model.init_method.use_mup", "rates are the same for all widths"),
    no_counterpart("model.init_method.path",
                   "nanotron's checkpoints are not read: write model.path of a Hugging Face folder"),
    taken("model.model_config.is_llama_config", "model.family", take_family),
    taken("model.model_config.is_qwen2_config", "model.family", take_family),
    no_counterpart("model.model_config.is_starcoder2_config", "write model.preset or the shape"),
    whole("model.model_config.num_hidden_layers", "model.layers"),
    whole("model.model_config.hidden_size", "model.hidden"),
    whole("model.model_config.num_attention_heads", "model.heads"),
    whole("model.model_config.num_key_value_heads", "model.kv_heads"),
    whole("model.model_config.head_dim", "model.head_dim"),
    whole("model.model_config.intermediate_size", "model.ffn"),
    whole("model.model_config.vocab_size", "model.vocab"),
    whole("model.model_config.max_position_embeddings", "model.context"),
    number("model.model_config.rms_norm_eps", "model.norm_eps"),
    number("model.model_config.rope_theta", "model.rope_theta"),
    no_counterpart("model.model_config.rope_scaling.**", "write model.rope_scaling and its keys"),
    no_counterpart("model.model_config.rope_scaling", "write model.rope_scaling and its keys"),
    taken("model.model_config.rope_interleaved", "", take_interleaved),
    no_counterpart("model.model_config.rope_seq_len_interpolation_factor",
                   "write model.rope_scaling = \"linear\" and rope_factor"),
    flag("model.model_config.tie_word_embeddings", "model.tie_embeddings"),
    taken("model.model_config.attention_bias", "model.qkv_bias", take_bias),
    taken("model.model_config.hidden_act", "model.activation", take_activation),
    taken("model.model_config.initializer_range", "", take_init),
    whole("model.model_config.sliding_window_size", "model.window"),
    flag("model.model_config._use_doc_masking", "data.documents"),
    no_counterpart("model.model_config.no_rope_layer", "every layer turns its queries and keys"),
    no_counterpart("model.model_config.z_loss_enabled", "model.z_loss is of routers"),
    not_needed("model.model_config.z_loss_coefficient", "model.z_loss is of routers"),
    not_needed("model.model_config.bos_token_id", kTokens),
    not_needed("model.model_config.eos_token_id", kTokens),
    not_needed("model.model_config.pad_token_id", kTokens),
    not_needed("model.model_config.use_cache", "training keeps no cache"),
    not_needed("model.model_config.pretraining_tp", "any mesh computes the same"),
    not_needed("model.model_config._attn_implementation", kKernels),
    not_needed("model.model_config._fused_rms_norm", kKernels),
    not_needed("model.model_config._fused_rotary_emb", kKernels),
    not_needed("model.model_config._use_qkv_packed", kKernels),
    not_needed("model.model_config.flex_attention_mask", kKernels),
    not_needed("model.model_config.log_attn_probs", kLogs),
    not_needed("model.model_config.ring_attn_heads_k_stride", "mesh.cp_mode says how"),
    whole("model.model_config.moe_config.num_experts", "model.experts"),
    whole("model.model_config.moe_config.top_k", "model.experts_per_token"),
    whole("model.model_config.moe_config.moe_intermediate_size", "model.expert_ffn"),
    number("model.model_config.moe_config.router_aux_loss_coef", "model.aux_loss"),
    taken("model.model_config.moe_config.enable_shared_expert", "model.shared_experts", take_shared),
    same("model.model_config.moe_config.shared_expert_intermediate_size", "model.shared_experts says it"),
    taken("model.model_config.moe_config.token_dispatcher_type", "", take_dispatch),
    no_counterpart("model.model_config.moe_config.layers", "write model.first_dense_layers or model.expert_layers"),

    whole("optimizer.zero_stage", "mesh.zero"),
    number("optimizer.weight_decay", "optimizer.weight_decay"),
    taken("optimizer.clip_grad", "optimizer.clip", take_clip),
    taken("optimizer.accumulate_grad_in_fp32", "train.gradients", take_gradients),
    no_counterpart("optimizer.weight_decay_exclude_named_params", "weight decay is of matrices only"),
    taken("optimizer.optimizer_factory.name", "optimizer.name", take_optimizer),
    taken("optimizer.optimizer_factory.adam_beta1", "optimizer.betas", take_beta),
    taken("optimizer.optimizer_factory.adam_beta2", "optimizer.betas", take_beta),
    number("optimizer.optimizer_factory.adam_eps", "optimizer.eps"),
    same("optimizer.optimizer_factory.torch_adam_is_fused", "one kernel updates all"),
    number("optimizer.learning_rate_scheduler.learning_rate", "optimizer.lr"),
    whole("optimizer.learning_rate_scheduler.lr_warmup_steps", "optimizer.warmup"),
    taken("optimizer.learning_rate_scheduler.lr_warmup_style", "", take_warmup_style),
    taken("optimizer.learning_rate_scheduler.lr_decay_style", "optimizer.schedule", take_decay),
    taken("optimizer.learning_rate_scheduler.lr_decay_steps", "", take_decay_length),
    taken("optimizer.learning_rate_scheduler.lr_decay_starting_step", "optimizer.decay_steps", take_decay_start),
    number("optimizer.learning_rate_scheduler.min_decay_lr", "optimizer.min_lr"),

    text("tokenizer.tokenizer_name_or_path", "data.tokenizer"),
    not_needed("tokenizer.tokenizer_revision", "the tokenizer is a file"),
    not_needed("tokenizer.tokenizer_max_length", "texts are cut into rows"),
    text("checkpoints.checkpoints_path", "checkpoint.dir"),
    whole("checkpoints.checkpoint_interval", "checkpoint.every"),
    no_counterpart("checkpoints.resume_checkpoint_path",
                   "nanotron's checkpoints are not read: write model.path of a Hugging Face folder"),
    no_counterpart("checkpoints.save_initial_state", "the first checkpoint is that of checkpoint.every"),
    same("checkpoints.save_final_state", "the last step is saved"),
    same("checkpoints.load_lr_scheduler", "the rate is a function of the step"),
    same("checkpoints.load_optimizer", "checkpoints have all of a run"),
    not_needed("checkpoints.checkpoints_path_is_shared_file_system", "all ranks write into one folder"),

    taken("data_stages.*.start_training_step", "", take_first_stage),
    not_needed("data_stages.*.name", "a run has one data.train"),
    no_counterpart("data_stages.*.sequence_length", "a run has one train.seq_len"),
    not_needed("data_stages.*.data.seed", "train.seed orders the rows too"),
    not_needed("data_stages.*.data.num_loading_workers", "batches are cut out of mapped files"),
    no_counterpart("data_stages.*.data.dataset", kData),
    no_counterpart("data_stages.*.data.dataset.hf_dataset_or_datasets", kData),
    no_counterpart("data_stages.*.data.dataset.hf_dataset_or_datasets.**", kData),
    no_counterpart("data_stages.*.data.dataset.hf_dataset_splits", kData),
    no_counterpart("data_stages.*.data.dataset.hf_dataset_config_name", kData),
    no_counterpart("data_stages.*.data.dataset.text_column_name", kData),
    not_needed("data_stages.*.data.dataset.dataset_processing_num_proc_per_process",
               "texts are tokenized once, by all cores"),
    not_needed("data_stages.*.data.dataset.dataset_overwrite_cache", "a changed text is tokenized again"),
    no_counterpart("data_stages.*.data.dataset.dataset_folder", kData),
    no_counterpart("data_stages.*.data.dataset.dataset_weights", "rows are drawn evenly"),
    no_counterpart("data_stages.*.data.dataset.dataset_max_tokens", kData),
    no_counterpart("data_stages.*.data.dataset.dataset_read_path", kData),
    not_needed("data_stages.*.data.dataset.tokenizer_name", kData),
    not_needed("data_stages.*.data.dataset.vocab_size", kTokens),
    not_needed("data_stages.*.data.dataset.token_size_in_bytes", kTokens),
    not_needed("data_stages.*.data.dataset.return_positions", "see data.documents"),
    not_needed("data_stages.*.data.dataset.skip_in_stream", kDone),
    not_needed("data_stages.*.data.dataset.pad_samples_to_global_batch_size", "rows are dealt out whole"),
    not_needed("data_stages.*.data.dataset.shuffle_files", "rows are drawn by seed and step"),
    not_needed("data_stages.*.data.dataset.use_old_brrr_dataloader", kData),
    no_counterpart("data_stages.*.data.dataset.sft_dataloader",
                   "write data.format = \"chat\"; see docs/fine-tuning.md"),
    no_counterpart("data_stages.*.data.dataset.debug_max_samples", kData),
    not_needed("logging.**", kLogs),
    not_needed("metrics_logging.**", kLogs),
    not_needed("profiler.**", "write log.trace_steps = [first, last]"),
    no_counterpart("lighteval.**", "weft eval MODEL --data PATH evaluates"),
    no_counterpart("s3_upload.**", "checkpoints are files: copy those that are complete"),
};

void finish(Translation& t) {
  constexpr std::string_view kDefault = "nanotron's default";
  t.settle_data_parallel({});
  if (t.has("model.hidden")) t.imply("model.norm_eps", 1e-6, kDefault);
  if (t.has("mesh.pp")) t.imply("mesh.schedule", std::string("gpipe"), kDefault);
  t.imply("optimizer.schedule", std::string("linear"), kDefault);
  t.imply("optimizer.warmup", int64_t(0), kDefault);
  if (const auto lr = t.number("optimizer.learning_rate_scheduler.learning_rate"))
    t.imply("optimizer.min_lr", *lr, kDefault);
  t.imply("optimizer.clip", 0.0, kDefault);
}

}  // namespace
}  // namespace nanotron

Format nanotron_format() {
  using namespace nanotron;
  return {ImportKind::nanotron, "nanotron", "nanotron", kRules, finish};
}

}  // namespace weft::plan
