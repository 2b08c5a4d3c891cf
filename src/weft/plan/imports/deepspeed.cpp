// DeepSpeed's JSON configuration. Names and defaults: its documentation, "DeepSpeed Configuration JSON".
#include "weft/plan/imports/translation.h"

namespace weft::plan {
namespace deepspeed {
namespace {

constexpr std::string_view kOwnBuckets = "weft cuts and orders its collectives by what computes beside them";
constexpr std::string_view kOwnFiles = "weft's transfers have buffers and queues of their own";
constexpr std::string_view kOwnScale = "weft's loss scale begins and moves by itself";
constexpr std::string_view kNoCompression = "weft trains dense weights: weft convert quantises what is trained";
constexpr std::string_view kLogs = "weft writes metrics.jsonl and TensorBoard files: see [log]";

void take_precision(Translation& t, const ConfigEntry& entry, std::string_view) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put("train.precision", std::string(entry.key.starts_with("fp16") ? "fp16" : "bf16"));
}

void take_gradients(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string type = t.text_of(entry);
  if (type == "fp32") return t.say(Fate::same, kWholeSums);
  if (type != "bf16" && type != "fp16") t.reject(entry, "fp32, fp16 or bf16");
  take_bf16_gradients(t, target, type == "bf16" && (t.is_on("bf16.enabled") || t.is_on("bfloat16.enabled")));
}

void take_loss_scale(Translation& t, const ConfigEntry& entry, std::string_view) {
  if (t.number_of(entry) == 0) return t.say(Fate::same, "the loss scale is dynamic");
  t.say(Fate::no_counterpart, "the loss scale is dynamic");
}

void take_device(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string device = t.text_of(entry);
  if (device == "none") return t.say(Fate::same, "off");
  if (device != "cpu" && device != "nvme") t.reject(entry, "none, cpu or nvme");
  t.put(target, std::string(device == "cpu" ? "host" : "disk"));
}
void take_old_offload(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, std::string("host"));
}
void take_nvme_path(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string section = entry.key.substr(0, entry.key.rfind('.'));
  if (t.text(section + ".device") != "nvme") return t.say(Fate::not_needed, "nothing is kept on a disk");
  t.put(target, t.text_of(entry));
}

void take_optimizer(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string type = t.text_of(entry);
  std::string low;
  for (const char c : type) low += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  if (low == "adam" || low == "adamw" || low == "lion" || low == "sgd" || low == "muon") {
    t.put(target, low == "adam" ? "adamw" : low);
    if (low == "adam") t.add("weight decay is apart from the gradient");
    return;
  }
  t.say(Fate::no_counterpart, fmt::format("weft has no {}: adamw stands in the recipe", type));
  t.open(target, fmt::format("{} has no counterpart; a learning rate for adamw may be another", type));
}

void take_betas(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const auto* items = std::get_if<std::vector<Toml::Scalar>>(&*entry.value);
  if (!items || items->size() != 2) t.reject(entry, "two numbers");
  t.put(target, *entry.value);
}

// The rate before warm-up and after: the peak.
void take_peak(Translation& t, const ConfigEntry& entry, std::string_view target) {
  t.put(target, t.number_of(entry));
  if (const auto lr = t.number("optimizer.params.lr"); lr && *lr != t.number_of(entry))
    t.add("the scheduler's rate counts, not the optimizer's");
}
void take_lr(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (t.number("scheduler.params.warmup_max_lr"))
    return t.say(Fate::not_needed, "optimizer.lr is scheduler.params.warmup_max_lr");
  t.put(target, t.number_of(entry));
}
void take_scheduler(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string type = t.text_of(entry);
  const std::string_view name = type == "WarmupLR"         ? "constant"
                                : type == "WarmupDecayLR"  ? "linear"
                                : type == "WarmupCosineLR" ? "cosine"
                                                           : "";
  if (name.empty())
    return t.say(Fate::no_counterpart, "weft has cosine, linear, wsd and constant: write optimizer.schedule");
  t.put(target, std::string(name));
}
void take_min_lr(Translation& t, const ConfigEntry& entry, std::string_view) {
  if (t.number_of(entry) == 0) return t.say(Fate::same, "warm-up begins at 0");
  t.say(Fate::no_counterpart, "warm-up begins at 0");
}
void take_cosine_floor(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const auto lr = t.number("optimizer.params.lr");
  if (t.text("scheduler.type") != "WarmupCosineLR") return t.say(Fate::not_needed, "it is a key of WarmupCosineLR");
  if (!lr) return t.say(Fate::open, "a share of a rate that the file does not say: write optimizer.min_lr");
  t.put(target, t.number_of(entry) * *lr);
}

// Which activations are forgotten is said by the model's code, and moved by these.
void take_cpu_activations(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put("mesh.recompute", std::string("block"));
  t.put(target, std::string("host"));
}

void take_hierarchy(Translation& t, const ConfigEntry& entry, std::string_view) {
  const int64_t size = t.whole_of(entry);
  if (size <= 1) return t.say(Fate::same, "off");
  t.say(Fate::no_counterpart,
        fmt::format("groups of {} that hold the weights whole between them are near to mesh.hsdp = dp / {}", size,
                    size));
  t.open("mesh.hsdp", fmt::format("dp / {} holds shards within groups of {} devices", size, size));
}

constexpr Rule kRules[] = {
    whole("train_batch_size", "train.global_batch"),
    whole("train_micro_batch_size_per_gpu", "train.micro_batch"),
    whole("gradient_accumulation_steps", "train.accumulation"),
    number("gradient_clipping", "optimizer.clip"),
    whole("seed", "train.seed"),
    taken("bf16.enabled", "train.precision", take_precision),
    taken("bfloat16.enabled", "train.precision", take_precision),
    taken("fp16.enabled", "train.precision", take_precision),
    same("fp16.auto_cast", "inputs are token ids"),
    same("bf16.auto_cast", "inputs are token ids"),
    taken("fp16.loss_scale", "", take_loss_scale),
    not_needed("fp16.initial_scale_power", kOwnScale),
    not_needed("fp16.loss_scale_window", kOwnScale),
    not_needed("fp16.hysteresis", kOwnScale),
    not_needed("fp16.consecutive_hysteresis", kOwnScale),
    not_needed("fp16.min_loss_scale", kOwnScale),
    no_counterpart("fp16.fp16_master_weights_and_grads",
                   "masters are fp32; optimizer.name = \"adamw8bit\" saves memory"),
    same("bf16.immediate_grad_update", "gradients are added up as they come"),
    same("bf16.check_grad_overflow", "train.on_not_finite says what happens"),
    no_counterpart("amp.**", "write train.precision = \"bf16\" or \"fp16\""),
    taken("data_types.grad_accum_dtype", "train.gradients", take_gradients),
    taken("grad_accum_dtype", "train.gradients", take_gradients),
    not_needed("communication_data_type", "gradients travel in the precision they are summed in"),
    not_needed("seq_parallel_communication_data_type", "tokens travel in train.precision"),

    taken("optimizer.type", "optimizer.name", take_optimizer),
    taken("optimizer.params.lr", "optimizer.lr", take_lr),
    taken("optimizer.params.betas", "optimizer.betas", take_betas),
    number("optimizer.params.eps", "optimizer.eps"),
    number("optimizer.params.weight_decay", "optimizer.weight_decay"),
    number("optimizer.params.momentum", "optimizer.momentum"),
    flag("optimizer.params.nesterov", "optimizer.nesterov"),
    same("optimizer.params.adam_w_mode", "weight decay is apart from the gradient"),
    same("optimizer.params.torch_adam", "one kernel updates all"),
    same("optimizer.params.fused", "one kernel updates all"),
    same("optimizer.params.bias_correction", "moments are corrected"),
    no_counterpart("optimizer.params.**", "weft's optimizers have no such option"),
    same("optimizer.legacy_fusion", "one kernel updates all"),
    same("zero_allow_untested_optimizer", "every optimizer runs on every mesh"),
    not_needed("zero_force_ds_cpu_optimizer", "the optimizer computes where the weights are"),
    taken("scheduler.type", "optimizer.schedule", take_scheduler),
    {"scheduler.params.warmup_min_lr", Fate::no_counterpart, "warm-up begins at 0", take_min_lr},
    taken("scheduler.params.warmup_max_lr", "optimizer.lr", take_peak),
    whole("scheduler.params.warmup_num_steps", "optimizer.warmup"),
    same("scheduler.params.warmup_min_ratio", "warm-up begins at 0"),
    taken("scheduler.params.cos_min_ratio", "optimizer.min_lr", take_cosine_floor),
    same("scheduler.params.warmup_type", "warm-up is linear"),
    whole("scheduler.params.total_num_steps", "train.steps"),
    no_counterpart("scheduler.params.**", "weft has cosine, linear, wsd and constant: write optimizer.schedule"),

    whole("zero_optimization.stage", "mesh.zero"),
    taken("zero_optimization.offload_optimizer.device", "mesh.offload_optimizer", take_device),
    taken("zero_optimization.offload_param.device", "mesh.offload_parameters", take_device),
    taken("zero_optimization.offload_optimizer.nvme_path", "mesh.offload_dir", take_nvme_path),
    taken("zero_optimization.offload_param.nvme_path", "mesh.offload_dir", take_nvme_path),
    not_needed("zero_optimization.offload_optimizer.pin_memory", kOwnFiles),
    not_needed("zero_optimization.offload_param.pin_memory", kOwnFiles),
    same("zero_optimization.offload_optimizer.pipeline", "transfers run beside the update"),
    same("zero_optimization.offload_optimizer.pipeline_read", "transfers run beside the update"),
    same("zero_optimization.offload_optimizer.pipeline_write", "transfers run beside the update"),
    not_needed("zero_optimization.offload_optimizer.fast_init", "states begin where they are kept"),
    no_counterpart("zero_optimization.offload_optimizer.ratio", "all states are offloaded, or none"),
    not_needed("zero_optimization.offload_optimizer.buffer_count", kOwnFiles),
    not_needed("zero_optimization.offload_optimizer.buffer_size", kOwnFiles),
    not_needed("zero_optimization.offload_param.buffer_count", kOwnFiles),
    not_needed("zero_optimization.offload_param.buffer_size", kOwnFiles),
    not_needed("zero_optimization.offload_param.max_in_cpu", "parameters are on the host or on a disk, not on both"),
    taken("zero_optimization.cpu_offload", "mesh.offload_optimizer", take_old_offload),
    taken("zero_optimization.cpu_offload_params", "mesh.offload_parameters", take_old_offload),
    taken("zero_optimization.cpu_offload_param", "mesh.offload_parameters", take_old_offload),
    not_needed("zero_optimization.cpu_offload_use_pin_memory", kOwnFiles),
    same("zero_optimization.contiguous_gradients", "gradients lie in flat buckets"),
    same("zero_optimization.overlap_comm", "collectives run beside the backward pass"),
    same("zero_optimization.reduce_scatter", "with ZeRO gradients are reduced to their owners"),
    same("zero_optimization.allgather_partitions", "new values are gathered"),
    same("zero_optimization.round_robin_gradients", "owners are balanced by size"),
    same("zero_optimization.use_multi_rank_bucket_allreduce", "with ZeRO gradients are reduced to their owners"),
    same("zero_optimization.load_from_fp32_weights", "masters are fp32"),
    same("zero_optimization.elastic_checkpoint", "checkpoints are read by any mesh"),
    same("zero_optimization.ignore_unused_parameters", "gradients of weights that nothing reached are zeros"),
    same("zero_optimization.memory_efficient_linear", "a linear layer saves its input alone"),
    same("zero_optimization.stage3_gather_16bit_weights_on_model_save", "weft convert writes whole models"),
    same("zero_optimization.stage3_gather_fp16_weights_on_model_save", "weft convert writes whole models"),
    not_needed("zero_optimization.reduce_bucket_size", kOwnBuckets),
    not_needed("zero_optimization.allgather_bucket_size", kOwnBuckets),
    not_needed("zero_optimization.sub_group_size", kOwnBuckets),
    not_needed("zero_optimization.stage3_prefetch_bucket_size", kOwnBuckets),
    not_needed("zero_optimization.stage3_param_persistence_threshold", kOwnBuckets),
    not_needed("zero_optimization.stage3_model_persistence_threshold", kOwnBuckets),
    not_needed("zero_optimization.stage3_max_live_parameters", "a block at a time is whole, the next under way"),
    not_needed("zero_optimization.stage3_max_reuse_distance", "mesh.reshard_after_forward says what stays whole"),
    not_needed("zero_optimization.stage3_module_granularity_threshold", kOwnBuckets),
    not_needed("zero_optimization.module_granularity_threshold", kOwnBuckets),
    not_needed("zero_optimization.stage3_use_all_reduce_for_fetch_params", kOwnBuckets),
    not_needed("zero_optimization.prefetch_bucket_size", kOwnBuckets),
    not_needed("zero_optimization.param_persistence_threshold", kOwnBuckets),
    not_needed("zero_optimization.model_persistence_threshold", kOwnBuckets),
    not_needed("zero_optimization.max_live_parameters", "a block at a time is whole, the next under way"),
    not_needed("zero_optimization.max_reuse_distance", "mesh.reshard_after_forward says what stays whole"),
    not_needed("zero_optimization.gather_16bit_weights_on_model_save", "weft convert writes whole models"),
    not_needed("zero_optimization.legacy_stage1", "there is one stage 1"),
    not_needed("zero_optimization.grad_hooks", "the tape knows when a gradient is whole"),
    not_needed("zero_optimization.log_trace_cache_warnings", "nothing is recorded to be repeated"),
    not_needed("zero_optimization.pipeline_loading_checkpoint", "checkpoints are read part by part"),
    not_needed("zero_optimization.override_module_apply", "there are no modules to be wrapped"),
    taken("zero_optimization.zero_hpz_partition_size", "mesh.hsdp", take_hierarchy),
    taken("zero_optimization.mics_shard_size", "mesh.hsdp", take_hierarchy),
    not_needed("zero_optimization.mics_hierarchical_params_gather", "mesh.hsdp gathers within its groups"),
    no_counterpart("zero_optimization.zero_quantized_weights", "weights are gathered in train.precision"),
    no_counterpart("zero_optimization.zero_quantized_nontrainable_weights",
                   "lora.quantize = \"nf4\" keeps frozen weights in 4 bits"),
    no_counterpart("zero_optimization.zero_quantized_gradients", "gradients are reduced whole"),
    no_counterpart("zero_optimization.zeropp_loco_param.**", "gradients are reduced whole"),

    taken("activation_checkpointing.cpu_checkpointing", "mesh.offload_activations", take_cpu_activations),
    no_counterpart("activation_checkpointing.partition_activations",
                   "mesh.sequence_parallel cuts what is kept over the tensor-parallel ranks"),
    same("activation_checkpointing.contiguous_memory_optimization", "the allocator keeps memory whole"),
    not_needed("activation_checkpointing.number_checkpoints",
               "mesh.recompute says which blocks: \"block\" or \"every:N\""),
    same("activation_checkpointing.synchronize_checkpoint_boundary", "not needed for order"),
    not_needed("activation_checkpointing.profile", "log.trace_steps measures"),

    whole("tensor_parallel.autotp_size", "mesh.tp"),
    whole("tensor_parallel.tp_size", "mesh.tp"),
    whole("tensor_parallel.tp.tp_size", "mesh.tp"),
    not_needed("tensor_parallel.**", "weft knows how its models are cut"),
    whole("sequence_parallel_size", "mesh.cp"),
    no_counterpart("pipeline.**", "stages are not parts of a program here: write mesh.pp and mesh.schedule"),
    same("prescale_gradients", "sums of gradients are kept in fp32"),
    same("gradient_predivide_factor", "sums of gradients are kept in fp32"),
    no_counterpart("sparse_gradients", "gradients of the embedding are dense"),
    same("disable_allgather", "new values are gathered as mesh.zero says"),
    same("dataloader_drop_last", "rows are dealt out whole"),
    not_needed("steps_per_print", "every step is printed and written"),
    not_needed("wall_clock_breakdown", "metrics.jsonl and log.trace_steps have it"),
    not_needed("memory_breakdown", "metrics.jsonl has peak_bytes"),
    not_needed("dump_state", "weft plan and log.dir's recipe.toml show what is run"),
    not_needed("flops_profiler.**", "metrics.jsonl has mfu and hfu"),
    not_needed("comms_logger.**", "metrics.jsonl and log.trace_steps have it"),
    flag("tensorboard.enabled", "log.tensorboard"),
    text("tensorboard.output_path", "log.dir"),
    not_needed("tensorboard.job_name", "log.dir names the run"),
    not_needed("csv_monitor.**", kLogs),
    no_counterpart("wandb.**", kLogs),
    no_counterpart("comet.**", kLogs),
    not_needed("checkpoint.**", "a checkpoint is written once, whole, and is read by any mesh"),
    not_needed("load_universal_checkpoint", "checkpoints are read by any mesh"),
    not_needed("use_node_local_storage", "all ranks write into one folder"),
    not_needed("aio.**", kOwnFiles),
    not_needed("autotuning.**", "weft plan MODEL --cluster SPEC searches"),
    no_counterpart("elasticity.**", "checkpoints are resumed by any mesh: change mesh.dp"),
    no_counterpart("compression_training.**", kNoCompression),
    no_counterpart("quantize_training.**", kNoCompression),
    no_counterpart("sparse_attention.**", "attention is exact; model.window makes it local"),
    no_counterpart("curriculum_learning.**", "rows are drawn evenly"),
    no_counterpart("data_efficiency.**", "rows are drawn evenly"),
    no_counterpart("progressive_layer_drop.**", "every layer is trained"),
    no_counterpart("eigenvalue.**", "weft computes no curvature"),
    no_counterpart("hybrid_engine.**", "weft serve answers while training goes on elsewhere"),
    no_counterpart("nebula.**", "[checkpoint] writes in the background"),
    not_needed("use_data_before_expert_parallelism", "mesh.ep lies within mesh.dp x mesh.cp"),
    not_needed("compile.**", "kernels are compiled already"),
    not_needed("torch_autocast.**", "write train.precision"),
    not_needed("gradient_accumulation_dtype", "gradients are added up in fp32"),
    not_needed("graph_harvesting", "kernels are compiled already"),
    not_needed("timers.**", "metrics.jsonl has the times"),
};

void finish(Translation& t) {
  t.settle_data_parallel({});
  constexpr std::string_view kDefault = "DeepSpeed's default";
  t.imply("optimizer.clip", 0.0, kDefault);
  if (!t.has("train.precision")) t.imply("train.precision", std::string("fp32"), kDefault);
  const std::string optimizer = t.word_in_recipe("optimizer.name");
  if (optimizer == "adamw") t.imply("optimizer.betas", pair_of(0.9, 0.999), "the default of Adam");
  if (!optimizer.empty()) t.imply("optimizer.weight_decay", 0.0, "the optimizers' default");
  if (!t.has("optimizer.schedule")) {
    t.imply("optimizer.schedule", std::string("constant"), "no scheduler in the file");
    t.imply("optimizer.warmup", int64_t(0), "no scheduler in the file");
    t.open("optimizer.schedule", "the training script may have a schedule of its own");
  } else if (t.word_in_recipe("optimizer.schedule") != "constant") {
    t.imply("optimizer.min_lr", 0.0, kDefault);
  }
  if (!t.has("optimizer.lr")) t.open("optimizer.lr", "weft's usual rate stands there");
  if (!t.has("train.steps")) t.open("train.steps", "the training script knows");
  t.open("train.seq_len", "the training script knows");
}

}  // namespace
}  // namespace deepspeed

Format deepspeed_format() {
  using namespace deepspeed;
  return {ImportKind::deepspeed, "deepspeed", "DeepSpeed", kRules, finish};
}

}  // namespace weft::plan
