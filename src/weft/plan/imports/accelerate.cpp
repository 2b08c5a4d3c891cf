// accelerate's YAML. Names: src/accelerate/commands/config; defaults: accelerate's documentation of its plugins.
#include "weft/plan/imports/translation.h"

namespace weft::plan {
namespace accelerate {
namespace {

constexpr std::string_view kLauncher = "weft starts its ranks itself, or under mpirun and srun; see --hosts";
constexpr std::string_view kWrapping = "weft shards block by block";
constexpr std::string_view kTpu = "weft has no TPU backend";
constexpr std::string_view kCompiled = "kernels are compiled already";
constexpr std::string_view kFp8 = "weft's fp8 is E4M3 in groups of 128 in all products, without a history of scales";

int64_t version(const Translation& t) { return t.whole_or("fsdp_config.fsdp_version", 1); }

void take_kind(Translation& t, const ConfigEntry& entry, std::string_view) {
  std::string kind = t.text_of(entry);
  if (flag_of(entry) == false) kind = "NO";  // YAML reads NO without quotes as false
  constexpr std::string_view kKinds[] = {"NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED", "MEGATRON_LM"};
  if (std::ranges::find(kKinds, kind) == std::end(kKinds))
    return t.say(Fate::no_counterpart, "weft runs on CPUs and CUDA devices");
  if (kind == "FSDP" && !t.find("fsdp_config.fsdp_sharding_strategy") &&
      !t.find("fsdp_config.fsdp_reshard_after_forward"))
    return t.put("mesh.zero", int64_t(3));
  t.say(Fate::same, "the mesh says it");
}
void take_precision(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string name = flag_of(entry) == false ? "no" : t.text_of(entry);
  if (name == "fp8") {
    t.put(target, name);
    return t.add(kFp8);
  }
  if (name != "no" && name != "bf16" && name != "fp16") t.reject(entry, "no, bf16, fp16 or fp8");
  t.put(target, name == "no" ? std::string("fp32") : name);
}

void take_strategy(Translation& t, const ConfigEntry& entry, std::string_view target) {
  constexpr std::string_view kNames[] = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                         "HYBRID_SHARD_ZERO2"};
  constexpr int64_t kStages[] = {3, 2, 0, 3, 2};
  const std::string name = t.text_of(entry);
  size_t i = size_t(std::ranges::find(kNames, name) - kNames);
  if (const auto number = plan::number_of(entry); number && *number >= 1 && *number <= 5) i = size_t(*number) - 1;
  if (i >= std::size(kNames)) t.reject(entry, "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD or HYBRID_SHARD");
  t.put(target, kStages[i]);
  if (i < 3) return;
  if (const double machines = t.number_or("num_machines", 1); machines > 1)
    t.put("mesh.hsdp", whole_near(machines));
  else
    t.add("one machine holds one copy");
}
// Version 2 has no strategy: what is whole after the forward pass is what ZeRO-2 keeps whole.
void take_reshard(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!flag_of(entry)) return take_strategy(t, entry, "mesh.zero");
  if (version(t) >= 2 || !t.find("fsdp_config.fsdp_sharding_strategy")) t.put("mesh.zero", int64_t(3));
  t.put(target, *flag_of(entry));
}
void take_offload(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, std::string("host"));
  t.put("mesh.offload_optimizer", std::string("host"));
}
void take_recompute(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, std::string("block"));
}
void take_device(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string device = t.text_of(entry);
  if (device == "none") return t.say(Fate::same, "off");
  if (device != "cpu" && device != "nvme") t.reject(entry, "none, cpu or nvme");
  t.put(target, std::string(device == "cpu" ? "host" : "disk"));
}
void take_nvme_path(Translation& t, const ConfigEntry& entry, std::string_view target) {
  const std::string device = entry.key.substr(0, entry.key.size() - std::string_view("nvme_path").size()) + "device";
  if (t.text(device) != "nvme") return t.say(Fate::not_needed, "nothing is kept on a disk");
  t.put(target, t.text_of(entry));
}
void take_file(Translation& t, const ConfigEntry& entry, std::string_view) {
  t.say(Fate::open, "most of the configuration is in that file: weft plan --import it");
  t.open("deepspeed_config_file", fmt::format("weft plan --import {} has the rest", entry.text));
}
void take_gpu_ids(Translation& t, const ConfigEntry& entry, std::string_view) {
  if (entry.text == "all") return t.say(Fate::same, "every device is used");
  t.say(Fate::no_counterpart, "the environment says which devices a process sees");
}
void take_context_mode(Translation& t, const ConfigEntry& entry, std::string_view target) {
  static constexpr Words kModes = {{{"allgather", "allgather"}, {"alltoall", "ring"}, {"ring", "ring"}}};
  take_word(t, entry, target, kModes);
}
void take_sequence_ranks(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (t.whole_of(entry) == 1) return t.say(Fate::same, "off");
  t.put(target, t.whole_of(entry));
  t.put("mesh.cp_mode", std::string("ulysses"));
}
void take_replicas(Translation& t, const ConfigEntry& entry, std::string_view) {
  const int64_t replicas = t.whole_of(entry);
  const auto shard = t.whole_or("parallelism_config.parallelism_config_dp_shard_size", 1);
  t.put("mesh.dp", replicas * shard);
  if (shard > 1) t.put("mesh.zero", int64_t(3));
  if (shard > 1 && replicas > 1) t.put("mesh.hsdp", replicas);
}
void take_shards(Translation& t, const ConfigEntry& entry, std::string_view) {
  if (t.find("parallelism_config.parallelism_config_dp_replicate_size"))
    return t.say(Fate::same, "mesh.dp and mesh.hsdp say it");
  t.put("mesh.dp", t.whole_of(entry));
  if (t.whole_of(entry) > 1) t.put("mesh.zero", int64_t(3));
}
void take_megatron_optimizer(Translation& t, const ConfigEntry& entry, std::string_view target) {
  if (!t.flag_of(entry)) return t.say(Fate::same, "off");
  t.put(target, int64_t(1));
}

constexpr Rule kRules[] = {
    same("compute_environment", "ranks run where weft is started"),
    taken("distributed_type", "", take_kind),
    taken("mixed_precision", "train.precision", take_precision),
    same("num_processes", "the number of devices is the mesh's"),
    not_needed("num_machines", kLauncher),
    not_needed("machine_rank", kLauncher),
    not_needed("main_process_ip", kLauncher),
    not_needed("main_process_port", kLauncher),
    not_needed("main_training_function", kLauncher),
    not_needed("rdzv_backend", kLauncher),
    not_needed("rdzv_config.**", kLauncher),
    not_needed("same_network", kLauncher),
    not_needed("mpirun_config.**", kLauncher),
    taken("gpu_ids", "", take_gpu_ids),
    same("use_cpu", "weft runs on what the machine has"),
    same("debug", "collectives are checked, and a timeout says who is missing"),
    same("enable_cpu_affinity", "ranks are pinned"),
    no_counterpart("downcast_bf16", kTpu),
    no_counterpart("tpu_*", kTpu),
    no_counterpart("command_file", kTpu),
    no_counterpart("commands", kTpu),
    not_needed("dynamo_config.**", kCompiled),
    not_needed("dynamo_backend", kCompiled),
    no_counterpart("ipex_config.**", kCompiled),
    no_counterpart("fp8_config.**", kFp8),
    flag("fp16", "train.precision"),

    same("fsdp_config.fsdp_version", "the other keys say what is sharded"),
    taken("fsdp_config.fsdp_sharding_strategy", "mesh.zero", take_strategy),
    taken("fsdp_config.fsdp_reshard_after_forward", "mesh.reshard_after_forward", take_reshard),
    taken("fsdp_config.fsdp_offload_params", "mesh.offload_parameters", take_offload),
    taken("fsdp_config.fsdp_activation_checkpointing", "mesh.recompute", take_recompute),
    same("fsdp_config.fsdp_auto_wrap_policy", kWrapping),
    same("fsdp_config.fsdp_transformer_layer_cls_to_wrap", kWrapping),
    not_needed("fsdp_config.fsdp_min_num_params", kWrapping),
    same("fsdp_config.fsdp_backward_prefetch", "the next block's weights are gathered while one computes"),
    same("fsdp_config.fsdp_backward_prefetch_policy", "the next block's weights are gathered while one computes"),
    same("fsdp_config.fsdp_forward_prefetch", "the next block's weights are gathered while one computes"),
    same("fsdp_config.fsdp_use_orig_params", "parameters keep their names"),
    same("fsdp_config.fsdp_sync_module_states", "ranks begin with the same weights"),
    same("fsdp_config.fsdp_cpu_ram_efficient_loading", "a rank reads its own part"),
    not_needed("fsdp_config.fsdp_state_dict_type",
               "a checkpoint is written whole by all ranks, and is read by any mesh"),

    whole("deepspeed_config.zero_stage", "mesh.zero"),
    whole("deepspeed_config.gradient_accumulation_steps", "train.accumulation"),
    number("deepspeed_config.gradient_clipping", "optimizer.clip"),
    taken("deepspeed_config.offload_optimizer_device", "mesh.offload_optimizer", take_device),
    taken("deepspeed_config.offload_param_device", "mesh.offload_parameters", take_device),
    taken("deepspeed_config.offload_optimizer_nvme_path", "mesh.offload_dir", take_nvme_path),
    taken("deepspeed_config.offload_param_nvme_path", "mesh.offload_dir", take_nvme_path),
    same("deepspeed_config.zero3_init_flag", "a rank makes its own part of the weights"),
    not_needed("deepspeed_config.zero3_save_16bit_model", "weft convert writes whole models"),
    taken("deepspeed_config.deepspeed_config_file", "", take_file),
    not_needed("deepspeed_config.deepspeed_hostfile", kLauncher),
    not_needed("deepspeed_config.deepspeed_multinode_launcher", kLauncher),
    not_needed("deepspeed_config.deepspeed_inclusion_filter", kLauncher),
    not_needed("deepspeed_config.deepspeed_exclusion_filter", kLauncher),
    not_needed("deepspeed_config.deepspeed_moe_layer_cls_names", kWrapping),

    whole("megatron_lm_config.megatron_lm_tp_degree", "mesh.tp"),
    whole("megatron_lm_config.megatron_lm_pp_degree", "mesh.pp"),
    whole("megatron_lm_config.megatron_lm_context_parallel_size", "mesh.cp"),
    whole("megatron_lm_config.megatron_lm_expert_model_parallel_size", "mesh.ep"),
    whole("megatron_lm_config.megatron_lm_num_micro_batches", "train.accumulation"),
    flag("megatron_lm_config.megatron_lm_sequence_parallelism", "mesh.sequence_parallel"),
    same("megatron_lm_config.megatron_lm_recompute_activations", "scores of attention are not kept"),
    taken("megatron_lm_config.megatron_lm_use_distributed_optimizer", "mesh.zero", take_megatron_optimizer),
    number("megatron_lm_config.megatron_lm_gradient_clipping", "optimizer.clip"),
    no_counterpart("megatron_lm_config.**", "the options of Megatron-LM: weft plan --import its launch script"),

    taken("parallelism_config.parallelism_config_dp_replicate_size", "mesh.dp", take_replicas),
    taken("parallelism_config.parallelism_config_dp_shard_size", "mesh.dp", take_shards),
    whole("parallelism_config.parallelism_config_tp_size", "mesh.tp"),
    whole("parallelism_config.parallelism_config_cp_size", "mesh.cp"),
    taken("parallelism_config.parallelism_config_cp_comm_strategy", "mesh.cp_mode", take_context_mode),
    taken("parallelism_config.parallelism_config_sp_size", "mesh.cp", take_sequence_ranks),
    not_needed("parallelism_config.parallelism_config_cp_backend", "there is one implementation"),
    not_needed("parallelism_config.parallelism_config_sp_backend", "there is one implementation"),
    not_needed("parallelism_config.parallelism_config_sp_*", "rows have train.seq_len tokens"),

    no_counterpart("ec2_instance_type", "weft starts no machines"),
    no_counterpart("iam_role_name", "weft starts no machines"),
    no_counterpart("image_uri", "weft starts no machines"),
    no_counterpart("profile", "weft starts no machines"),
    no_counterpart("region", "weft starts no machines"),
    no_counterpart("base_job_name", "weft starts no machines"),
    no_counterpart("pytorch_version", "weft starts no machines"),
    no_counterpart("transformers_version", "weft starts no machines"),
    no_counterpart("py_version", "weft starts no machines"),
    no_counterpart("sagemaker_*", "weft starts no machines"),
    no_counterpart("additional_args.**", "weft starts no machines"),
};

void finish(Translation& t) {
  const auto devices = t.number("num_processes");
  t.settle_data_parallel(devices ? std::optional<int64_t>(whole_near(*devices)) : std::nullopt);
  constexpr std::string_view kScript = "the training script knows";
  t.imply("train.precision", std::string("fp32"), "accelerate's default");
  t.open("train.steps", kScript), t.open("train.seq_len", kScript), t.open("optimizer", kScript);
}

}  // namespace
}  // namespace accelerate

Format accelerate_format() {
  using namespace accelerate;
  return {ImportKind::accelerate, "accelerate", "accelerate", kRules, finish};
}

}  // namespace weft::plan
