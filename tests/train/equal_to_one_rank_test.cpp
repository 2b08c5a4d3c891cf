// The law of the house: any mesh gives the loss, every gradient and the updated weights of one rank.
#include "train/mesh_cases.h"

namespace weft {
namespace {

// Adapters beside every projection, and beside two, with dropout.
const LoraConfig kLora{.rank = 4, .alpha = 32, .dropout = 0, .targets = kAllTargets};
const LoraConfig kLoraDropout{.rank = 3, .alpha = 24, .dropout = 0.2f, .targets = 0x79};

const LoraConfig kDora{.rank = 4, .alpha = 32, .dropout = 0, .targets = kAllTargets, .is_dora = true};
const LoraConfig kDoraNf4{
    .rank = 3, .alpha = 24, .dropout = 0.2f, .targets = 0x79, .base = BaseFormat::nf4, .is_dora = true};

const MeshCase kMeshCases[] = {
    {.family = "gpt2", .shape = {.shard = 2}, .steps = 10},
    {.family = "gpt2", .shape = {.shard = 4}, .steps = 10},
    {.shape = {.shard = 2}, .steps = 10},
    {.shape = {.shard = 4}, .steps = 10},
    {.shape = {.shard = 8}, .steps = 10},
    {.shape = {.shard = 2}, .accumulation = 2, .steps = 10},
    {.family = "gpt2", .accumulation = 4, .steps = 10},
    {.family = "gpt2", .shape = {.shard = 2}, .accumulation = 2, .dropout = 0.2f, .steps = 10},
    {.family = "gpt2",
     .shape = {.shard = 4},
     .recompute = {RecomputePolicy::What::block},
     .dropout = 0.2f,
     .steps = 10},
    {.shape = {.shard = 2}, .recompute = {RecomputePolicy::What::block}, .steps = 10},
    {.family = "gpt2", .shape = {.shard = 2}, .precision = Precision::bf16, .steps = 10},
    {.shape = {.shard = 4}, .precision = Precision::bf16, .steps = 10},
    {.shape = {.shard = 2}, .zero = Zero::optimizer},
    {.shape = {.shard = 2}, .zero = Zero::gradients, .accumulation = 2},
    {.shape = {.shard = 4}, .zero = Zero::parameters, .accumulation = 2},
    {.family = "gpt2", .shape = {.shard = 2}, .zero = Zero::parameters, .tie = true},
    {.shape = {.replicate = 2, .shard = 2}, .zero = Zero::parameters},
    {.shape = {.replicate = 2, .shard = 2}, .zero = Zero::optimizer, .accumulation = 2},
    {.shape = {.tp = 2}},
    {.family = "gpt2", .shape = {.tp = 2}, .tie = true},
    {.shape = {.tp = 2}, .sequence_parallel = true},
    {.family = "gpt2", .shape = {.tp = 2}, .sequence_parallel = true, .tie = true},
    {.shape = {.tp = 3}},
    {.shape = {.tp = 4}, .sequence_parallel = true},
    {.shape = {.tp = 8}},
    {.shape = {.pp = 2}, .accumulation = 4},
    {.shape = {.pp = 4}, .schedule = ScheduleKind::gpipe, .accumulation = 4},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::interleaved, .virtual_stages = 2, .accumulation = 4},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::zb_h1, .accumulation = 4},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::zbv, .virtual_stages = 2, .accumulation = 4},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::zbv, .virtual_stages = 2, .accumulation = 4, .tie = true},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::dualpipe_v, .virtual_stages = 2, .accumulation = 4},
    {.family = "gpt2", .shape = {.pp = 2}, .accumulation = 2, .tie = true},
    {.family = "gpt2", .shape = {.pp = 2, .shard = 2}, .zero = Zero::parameters, .accumulation = 2, .tie = true},
    {.shape = {.cp = 2}, .cp_mode = ContextMode::ring},
    {.shape = {.cp = 4}, .dropout = 0.2f, .cp_mode = ContextMode::ring},
    {.shape = {.cp = 2}, .dropout = 0.2f, .cp_mode = ContextMode::ulysses},
    {.shape = {.cp = 4}, .cp_mode = ContextMode::ulysses},
    {.shape = {.cp = 2, .tp = 2}, .sequence_parallel = true, .dropout = 0.2f, .cp_mode = ContextMode::allgather},
    {.shape = {.shard = 2, .cp = 2, .tp = 2}, .zero = Zero::parameters, .sequence_parallel = true, .dropout = 0.2f},
    {.shape = {.pp = 2, .shard = 2, .tp = 2},
     .zero = Zero::gradients,
     .sequence_parallel = true,
     .schedule = ScheduleKind::zb_h1,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::block}},
    {.family = "gpt2",
     .shape = {.pp = 2, .shard = 2, .tp = 2},
     .zero = Zero::parameters,
     .sequence_parallel = true,
     .accumulation = 2,
     .recompute = {RecomputePolicy::What::attention},
     .precision = Precision::bf16,
     .tie = true},
    {.shape = {.shard = 2}, .lora = kLora},
    {.shape = {.shard = 4}, .zero = Zero::optimizer, .lora = kLora},
    {.shape = {.shard = 2}, .zero = Zero::gradients, .accumulation = 2, .lora = kLoraDropout},
    {.shape = {.shard = 4}, .zero = Zero::parameters, .accumulation = 2, .lora = kLora},
    {.shape = {.replicate = 2, .shard = 2}, .zero = Zero::parameters, .lora = kLora},
    {.shape = {.shard = 2},
     .zero = Zero::parameters,
     .offload_optimizer = OffloadTo::host,
     .offload_parameters = OffloadTo::host,
     .lora = kLora},
    {.shape = {.tp = 2}, .lora = kLora},
    {.shape = {.tp = 2}, .sequence_parallel = true, .lora = kLoraDropout},
    {.family = "gpt2", .shape = {.tp = 2}, .sequence_parallel = true, .tie = true, .lora = kLora},
    {.shape = {.tp = 3}, .lora = kLora},
    {.shape = {.tp = 4}, .sequence_parallel = true, .lora = kLora},
    {.shape = {.tp = 8}, .lora = kLoraDropout},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::zb_h1, .accumulation = 4, .lora = kLora},
    {.family = "gpt2", .shape = {.pp = 2}, .accumulation = 2, .tie = true, .lora = kLora},
    {.shape = {.cp = 2}, .cp_mode = ContextMode::ring, .lora = kLoraDropout},
    {.shape = {.shard = 2, .cp = 2, .tp = 2},
     .zero = Zero::parameters,
     .sequence_parallel = true,
     .lora = kLoraDropout},
    {.shape = {.pp = 2, .shard = 2, .tp = 2},
     .zero = Zero::gradients,
     .sequence_parallel = true,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::block},
     .dropout = 0.2f,
     .lora = kLoraDropout},
    {.shape = {.shard = 2, .tp = 2}, .zero = Zero::optimizer, .precision = Precision::bf16, .lora = kLora},
    {.shape = {.shard = 2}, .lora = kNf4Adapters},
    {.shape = {.tp = 2}, .lora = kNf4Adapters},
    {.family = "gpt2", .shape = {.tp = 2}, .sequence_parallel = true, .tie = true, .lora = kNf4Adapters},
    {.shape = {.tp = 3}, .lora = kNf4Adapters},
    {.shape = {.tp = 8}, .lora = kNf4Adapters},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::zb_h1, .accumulation = 4, .lora = kNf4Adapters},
    {.shape = {.shard = 4}, .zero = Zero::parameters, .accumulation = 2, .lora = kNf4Adapters},
    {.shape = {.replicate = 2, .shard = 2}, .zero = Zero::parameters, .lora = kNf4Adapters},
    {.shape = {.shard = 2},
     .zero = Zero::parameters,
     .offload_optimizer = OffloadTo::host,
     .offload_parameters = OffloadTo::host,
     .lora = kNf4Adapters},
    {.shape = {.pp = 2, .shard = 2, .tp = 2},
     .zero = Zero::gradients,
     .sequence_parallel = true,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::block},
     .lora = kNf4Adapters},
    {.shape = {.shard = 2, .tp = 2}, .zero = Zero::parameters, .precision = Precision::bf16, .lora = kNf4Adapters},
    {.shape = {.shard = 2}, .lora = kDora},
    {.shape = {.tp = 2}, .sequence_parallel = true, .lora = kDora},
    {.family = "gpt2", .shape = {.tp = 2}, .tie = true, .lora = kDora},
    {.shape = {.tp = 8}, .lora = kDora},
    {.shape = {.pp = 2}, .accumulation = 4, .lora = kDora},
    {.shape = {.shard = 4}, .zero = Zero::parameters, .accumulation = 2, .lora = kDora},
    {.shape = {.pp = 2, .shard = 2, .tp = 2},
     .zero = Zero::gradients,
     .accumulation = 2,
     .recompute = {RecomputePolicy::What::block},
     .lora = kDoraNf4},
};

const LoraConfig kDeltaLora{.rank = 3, .alpha = 24, .dropout = 0.2f, .targets = kAllTargets};
const LoraConfig kDeltaDora{.rank = 4, .alpha = 32, .dropout = 0, .targets = kAllTargets, .is_dora = true};

const LoraConfig kSelectiveLora{
    .rank = 3, .alpha = 24, .dropout = 0.2f, .targets = LoraTargets(kAllTargets & ~bit_of(LoraTarget::state_beta))};

// Layers of Mamba-2, of whose one key all ranks have a copy.
const MeshCase kSelectiveCases[] = {
    {.family = "granitemoehybrid", .accumulation = 2, .dropout = 0.2f},
    {.family = "granitemoehybrid", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "granitemoehybrid", .shape = {.tp = 4}},
    {.family = "granitemoehybrid",
     .shape = {.pp = 2, .tp = 2},
     .schedule = ScheduleKind::zb_h1,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::block}},
    {.family = "granitemoehybrid", .shape = {.shard = 2, .tp = 2, .ep = 2}, .zero = Zero::parameters, .experts = 4},
    {.family = "granitemoehybrid", .shape = {.cp = 2}, .dropout = 0.2f},
    {.family = "granitemoehybrid", .shape = {.shard = 2, .cp = 2, .tp = 2}, .zero = Zero::gradients},
    {.family = "granitemoehybrid", .shape = {.tp = 2}, .lora = kSelectiveLora},
    {.family = "granitemoehybrid", .shape = {.tp = 2}, .precision = Precision::bf16},
};

// Attention and Mamba-2 side by side, with factors of what their projections give; one layer of two attends alone.
const MeshCase kBesideCases[] = {
    {.family = "falcon_h1", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "falcon_h1",
     .shape = {.pp = 2, .tp = 2},
     .schedule = ScheduleKind::zb_h1,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::block}},
    {.family = "falcon_h1", .shape = {.shard = 2, .cp = 2, .tp = 2}, .zero = Zero::gradients},
    {.family = "falcon_h1", .shape = {.cp = 2}, .recompute = {RecomputePolicy::What::attention}},
    {.family = "falcon_h1", .shape = {.tp = 2}, .lora = kSelectiveLora},
};

// Layers of the delta rule whose norms stand before their parts, between layers with norms behind them.
const MeshCase kPreNormCases[] = {
    {.family = "olmo_hybrid", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "olmo_hybrid", .shape = {.pp = 2, .shard = 2}, .zero = Zero::parameters, .accumulation = 2},
    {.family = "olmo_hybrid", .shape = {.cp = 2, .tp = 2}, .recompute = {RecomputePolicy::What::attention}},
    {.family = "olmo_hybrid", .shape = {.tp = 2}, .lora = kDeltaLora},
};

// Gated attention between norms, beside experts; values narrower than keys, and sinks in local layers; layers that
// are global by their number; sums that are scaled behind norms; norms behind experts, which logits may choose.
const MeshCase kGatedCases[] = {
    {.family = "afmoe", .shape = {.shard = 2, .tp = 2, .ep = 2}, .zero = Zero::parameters, .experts = 4},
    {.family = "afmoe", .shape = {.cp = 2, .tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "mimo_v2_flash", .shape = {.shard = 2, .tp = 2, .ep = 2}, .zero = Zero::parameters, .experts = 4},
    {.family = "mimo_v2_flash", .shape = {.cp = 2}, .recompute = {RecomputePolicy::What::attention}},
    {.family = "mimo_v2_flash", .shape = {.cp = 2, .tp = 2}, .cp_mode = ContextMode::allgather},
    {.family = "mimo_v2_flash", .shape = {.pp = 2, .tp = 2}, .accumulation = 2, .lora = kLora},
    {.family = "granite_swa", .shape = {.pp = 2, .tp = 2}, .accumulation = 2},
    {.family = "granite_swa", .shape = {.cp = 2}, .recompute = {RecomputePolicy::What::attention}},
    {.family = "minicpm3", .shape = {.shard = 2, .tp = 2}, .zero = Zero::parameters, .sequence_parallel = true},
    {.family = "minicpm3", .shape = {.pp = 2, .tp = 2}, .accumulation = 2, .tie = true},
    {.family = "minicpm3", .shape = {.cp = 2}, .recompute = {RecomputePolicy::What::attention}},
    {.family = "hyperclovax", .shape = {.shard = 2, .tp = 2}, .zero = Zero::parameters, .sequence_parallel = true},
    {.family = "axk1",
     .shape = {.shard = 2, .tp = 2, .ep = 2},
     .zero = Zero::parameters,
     .sequence_parallel = true,
     .experts = 4},
    {.family = "kolibri1", .shape = {.pp = 2, .shard = 2, .ep = 2}, .accumulation = 2, .experts = 4},
};

// An activation with numbers of its own, of which each rank of a tensor group says a part of the gradient.
const MeshCase kLearnedActivationCases[] = {
    {.family = "apertus", .accumulation = 2, .dropout = 0.2f},
    {.family = "apertus", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "apertus", .shape = {.tp = 3}, .tie = true},
    {.family = "apertus", .shape = {.shard = 2, .tp = 2}, .zero = Zero::parameters},
    {.family = "apertus",
     .shape = {.pp = 2, .tp = 2},
     .schedule = ScheduleKind::zb_h1,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::block}},
    {.family = "apertus", .shape = {.cp = 2}, .recompute = {RecomputePolicy::What::mlp}},
    {.family = "apertus", .shape = {.tp = 2}, .lora = kLora},
    {.family = "apertus", .shape = {.tp = 2}, .precision = Precision::bf16},
    {.family = "apertus", .precision = Precision::fp8},
};

// Heads with a bias, and norms of embeddings.
const MeshCase kHeadCases[] = {
    {.family = "phi", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "phi", .shape = {.shard = 2, .tp = 3}, .zero = Zero::parameters, .accumulation = 2},
    {.family = "phi", .shape = {.pp = 2, .tp = 2}, .accumulation = 2, .tie = true},
    {.family = "nanochat", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "nanochat", .shape = {.pp = 2, .shard = 2}, .zero = Zero::parameters, .accumulation = 2},
    {.family = "flex_olmo", .shape = {.shard = 2, .tp = 2, .ep = 2}, .zero = Zero::parameters, .experts = 4},
};

const LoraConfig kOutputLora{
    .rank = 3, .alpha = 24, .dropout = 0.2f, .targets = bit_of(LoraTarget::output) | bit_of(LoraTarget::up)};

// Rows that see some keys of their text, which all ranks of a tensor group select alike.
const MeshCase kSparseCases[] = {
    {.family = "deepseek_v32", .shape = {.shard = 2, .tp = 2, .ep = 2}, .zero = Zero::parameters, .experts = 4},
    {.family = "deepseek_v32", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "deepseek_v32",
     .shape = {.pp = 2, .tp = 2},
     .schedule = ScheduleKind::zb_h1,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::block}},
    {.family = "deepseek_v32", .shape = {.shard = 2}, .recompute = {RecomputePolicy::What::attention}, .mtp = true},
    {.family = "deepseek_v32", .shape = {.tp = 2}, .lora = kOutputLora},
    {.family = "glm_moe_dsa", .shape = {.shard = 2, .tp = 2}, .zero = Zero::parameters, .accumulation = 2},
    {.family = "glm_moe_dsa", .shape = {.tp = 2}, .recompute = {RecomputePolicy::What::block}},
    {.family = "glm_moe_dsa", .shape = {.shard = 2}, .recompute = {RecomputePolicy::What::attention}},
};

const LoraConfig kConvLora{.rank = 3,
                           .alpha = 24,
                           .dropout = 0.2f,
                           .targets = bit_of(LoraTarget::state_inputs) | bit_of(LoraTarget::state_output)};

// Gated convolutions, whose channels three ranks share unevenly; between norms, beside heads with a gate each.
const MeshCase kConvCases[] = {
    {.family = "lfm2", .accumulation = 2, .dropout = 0.2f},
    {.family = "lfm2", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "lfm2", .shape = {.tp = 3}, .tie = true},
    {.family = "lfm2",
     .shape = {.pp = 2, .tp = 2},
     .schedule = ScheduleKind::zb_h1,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::block}},
    {.family = "lfm2_moe", .shape = {.shard = 2, .tp = 2, .ep = 2}, .zero = Zero::parameters, .experts = 4},
    {.family = "lfm2", .shape = {.cp = 2}, .dropout = 0.2f},
    {.family = "lfm2", .shape = {.cp = 2, .tp = 3}},
    {.family = "lfm2", .shape = {.shard = 2, .cp = 2, .tp = 2}, .zero = Zero::gradients},
    {.family = "lfm2", .shape = {.tp = 2}, .lora = kConvLora},
    {.family = "lfm2", .shape = {.tp = 2}, .precision = Precision::bf16},
    {.family = "lfm3", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "lfm3", .shape = {.pp = 2, .shard = 2}, .zero = Zero::parameters, .accumulation = 2},
    {.family = "lfm3", .shape = {.cp = 2, .tp = 2}, .recompute = {RecomputePolicy::What::attention}},
    {.family = "lfm3", .shape = {.tp = 2}, .lora = kLora},
    {.family = "lfm3", .shape = {.tp = 2}, .precision = Precision::bf16},
};

// Layers of one part each.
const MeshCase kSingleCases[] = {
    {.family = "nemotron_h", .accumulation = 2, .dropout = 0.2f},
    {.family = "nemotron_h", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "nemotron_h",
     .shape = {.pp = 4},
     .schedule = ScheduleKind::zb_h1,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::block}},
    {.family = "nemotron_h",
     .shape = {.pp = 2, .tp = 2},
     .schedule = ScheduleKind::interleaved,
     .virtual_stages = 2,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::mlp}},
    {.family = "nemotron_h", .shape = {.shard = 2, .tp = 2, .ep = 2}, .zero = Zero::parameters, .experts = 4},
    {.family = "nemotron_h",
     .shape = {.shard = 2, .tp = 2, .ep = 2},
     .zero = Zero::parameters,
     .sequence_parallel = true,
     .dropout = 0.2f,
     .experts = 4,
     .expert_latent_dim = 20},
    {.family = "nemotron_h",
     .shape = {.pp = 2, .shard = 2, .ep = 2},
     .zero = Zero::parameters,
     .accumulation = 2,
     .recompute = {RecomputePolicy::What::block},
     .experts = 4,
     .offload_optimizer = OffloadTo::host,
     .offload_parameters = OffloadTo::host,
     .offload_activations = OffloadTo::host,
     .expert_latent_dim = 20},
    {.family = "nemotron_h", .shape = {.cp = 2, .tp = 2}, .recompute = {RecomputePolicy::What::attention}},
    {.family = "nemotron_h", .shape = {.tp = 2}, .lora = kSelectiveLora},
    {.family = "nemotron_h", .shape = {.shard = 2}, .zero = Zero::optimizer, .precision = Precision::bf16},
};

// Layers whose heads differ, and experts beside dense parts; of the one global head of keys all ranks have a copy.
const MeshCase kGemma4Cases[] = {
    {.family = "gemma4", .accumulation = 2, .dropout = 0.2f},
    {.family = "gemma4", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "gemma4", .shape = {.tp = 3}, .dropout = 0.2f, .tie = true},
    {.family = "gemma4", .shape = {.tp = 4}},
    {.family = "gemma4",
     .shape = {.pp = 2, .tp = 2},
     .schedule = ScheduleKind::zb_h1,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::block}},
    {.family = "gemma4", .shape = {.cp = 2}, .dropout = 0.2f},
    {.family = "gemma4", .shape = {.cp = 2, .tp = 2}, .dropout = 0.2f, .cp_mode = ContextMode::ulysses},
    {.family = "gemma4",
     .shape = {.shard = 2},
     .zero = Zero::parameters,
     .offload_optimizer = OffloadTo::host,
     .offload_parameters = OffloadTo::host,
     .offload_activations = OffloadTo::host},
    {.family = "gemma4", .shape = {.tp = 2}, .lora = kLoraDropout},
    {.family = "gemma4", .shape = {.tp = 2}, .precision = Precision::bf16},
    {.family = "gemma4",
     .shape = {.tp = 2},
     .sequence_parallel = true,
     .recompute = {RecomputePolicy::What::mlp},
     .dropout = 0.2f,
     .experts = 4},
    {.family = "gemma4", .shape = {.shard = 2, .tp = 2, .ep = 2}, .zero = Zero::parameters, .experts = 4},
    {.family = "gemma4",
     .shape = {.pp = 2, .shard = 2},
     .zero = Zero::gradients,
     .schedule = ScheduleKind::interleaved,
     .virtual_stages = 2,
     .accumulation = 2,
     .experts = 4},
    {.family = "gemma4", .shape = {.tp = 2}, .experts = 4, .lora = kLora},
    {.family = "gemma4", .accumulation = 2, .recompute = {RecomputePolicy::What::block}, .shared_keys = true},
    {.family = "gemma4",
     .shape = {.tp = 2},
     .sequence_parallel = true,
     .recompute = {RecomputePolicy::What::attention},
     .dropout = 0.2f,
     .shared_keys = true},
    {.family = "gemma4", .shape = {.tp = 4}, .tie = true, .shared_keys = true},
    {.family = "gemma4", .shape = {.cp = 2}, .dropout = 0.2f, .shared_keys = true},
    {.family = "gemma4",
     .shape = {.shard = 2, .cp = 2, .tp = 2},
     .zero = Zero::parameters,
     .recompute = {RecomputePolicy::What::block},
     .cp_mode = ContextMode::ulysses,
     .offload_optimizer = OffloadTo::host,
     .offload_parameters = OffloadTo::host,
     .offload_activations = OffloadTo::host,
     .shared_keys = true},
    {.family = "gemma4", .shape = {.shard = 2, .tp = 2}, .zero = Zero::gradients, .experts = 4, .shared_keys = true},
    {.family = "gemma4", .shape = {.tp = 2}, .lora = kLoraDropout, .shared_keys = true},
    {.family = "gemma4", .shape = {.tp = 2}, .precision = Precision::bf16, .shared_keys = true},
};

// Layers of the gated delta rule, of whose queries and keys four ranks share what two have.
const MeshCase kDeltaCases[] = {
    {.family = "qwen3_5", .accumulation = 2, .dropout = 0.2f},
    {.family = "qwen3_5",
     .shape = {.shard = 2},
     .zero = Zero::parameters,
     .recompute = {RecomputePolicy::What::block}},
    {.family = "qwen3_5", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "qwen3_5", .shape = {.tp = 4}},
    {.family = "qwen3_5", .shape = {.pp = 2, .tp = 2}, .schedule = ScheduleKind::zb_h1, .accumulation = 4},
    {.family = "qwen3_next", .shape = {.shard = 2, .tp = 2, .ep = 2}, .zero = Zero::optimizer, .experts = 4},
    {.family = "qwen3_5",
     .shape = {.shard = 2},
     .zero = Zero::parameters,
     .offload_optimizer = OffloadTo::host,
     .offload_parameters = OffloadTo::host,
     .offload_activations = OffloadTo::host},
    {.family = "qwen3_5",
     .shape = {.shard = 2},
     .lora = {.rank = 4, .alpha = 32, .dropout = 0, .targets = kAllTargets, .base = BaseFormat::nf4}},
    {.family = "qwen3_5", .shape = {.tp = 4}, .lora = kDeltaLora},
    {.family = "qwen3_5", .shape = {.tp = 2}, .sequence_parallel = true, .lora = kDeltaDora},
    {.family = "qwen3_5", .shape = {.shard = 2, .cp = 2}, .zero = Zero::parameters, .lora = kDeltaLora},
    {.family = "qwen3_5",
     .shape = {.pp = 2, .tp = 2},
     .accumulation = 2,
     .recompute = {RecomputePolicy::What::block},
     .precision = Precision::bf16,
     .lora = kDeltaDora},
    {.family = "qwen3_5", .shape = {.cp = 2}, .dropout = 0.2f},
    {.family = "qwen3_5", .shape = {.cp = 4}, .cp_mode = ContextMode::ulysses},  // of two keys
    {.family = "qwen3_next",
     .shape = {.shard = 2, .cp = 2, .tp = 2, .ep = 2},
     .zero = Zero::parameters,
     .recompute = {RecomputePolicy::What::block},
     .experts = 4},
    {.family = "qwen3_5", .shape = {.pp = 2, .cp = 2, .tp = 4}, .schedule = ScheduleKind::zb_h1, .accumulation = 4},
    {.family = "qwen3_5", .shape = {.pp = 2, .shard = 2}, .accumulation = 2, .precision = Precision::bf16}};

// The delta rule with a rate to each row of a state, between layers of latent attention that turns nothing.
const LoraConfig kKimiLora{.rank = 3,
                           .alpha = 24,
                           .dropout = 0.2f,
                           .targets = kStateTargets | bit_of(LoraTarget::output) | bit_of(LoraTarget::up)};
const MeshCase kKimiCases[] = {
    {.family = "kimi_linear", .accumulation = 2, .dropout = 0.2f},
    {.family = "kimi_linear", .shape = {.tp = 2}, .sequence_parallel = true, .dropout = 0.2f},
    {.family = "kimi_linear", .shape = {.tp = 4}},
    {.family = "kimi_linear",
     .shape = {.pp = 2, .tp = 2},
     .schedule = ScheduleKind::zb_h1,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::block}},
    {.family = "kimi_linear", .shape = {.shard = 2, .tp = 2, .ep = 2}, .zero = Zero::parameters, .experts = 4},
    {.family = "kimi_linear", .shape = {.cp = 2}, .dropout = 0.2f},
    {.family = "kimi_linear",
     .shape = {.shard = 2, .cp = 2, .tp = 2, .ep = 2},
     .zero = Zero::gradients,
     .recompute = {RecomputePolicy::What::attention},
     .experts = 4},
    {.family = "kimi_linear", .shape = {.tp = 4}, .lora = kKimiLora},
    {.family = "kimi_linear", .shape = {.shard = 2, .cp = 2}, .zero = Zero::parameters, .lora = kKimiLora},
    {.family = "kimi_linear", .shape = {.tp = 2}, .precision = Precision::bf16},
};

// Models that learn to predict a token further on; the embedding that this reads is on another stage, or on this one.
const MeshCase kMtpCases[] = {
    {.shape = {.shard = 2}, .accumulation = 2, .dropout = 0.2f, .mtp = true},
    {.shape = {.shard = 4}, .zero = Zero::parameters, .recompute = {RecomputePolicy::What::block}, .mtp = true},
    {.shape = {.shard = 2}, .zero = Zero::gradients, .accumulation = 2, .tie = true, .mtp = true},
    {.shape = {.tp = 2}, .dropout = 0.2f, .mtp = true},
    {.shape = {.tp = 4}, .sequence_parallel = true, .dropout = 0.2f, .mtp = true},
    {.shape = {.tp = 2}, .sequence_parallel = true, .tie = true, .mtp = true},
    {.shape = {.pp = 2}, .accumulation = 4, .dropout = 0.2f, .mtp = true},
    {.shape = {.pp = 2}, .accumulation = 2, .tie = true, .mtp = true},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::zb_h1, .accumulation = 4, .mtp = true},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::zbv, .virtual_stages = 2, .accumulation = 4, .mtp = true},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::interleaved, .virtual_stages = 2, .accumulation = 4, .mtp = true},
    {.shape = {.pp = 2, .shard = 2}, .zero = Zero::parameters, .accumulation = 2, .mtp = true},
    {.shape = {.cp = 2}, .dropout = 0.2f, .mtp = true},
    {.shape = {.cp = 4}, .cp_mode = ContextMode::ulysses, .mtp = true},
    {.family = "qwen3_5", .shape = {.cp = 2, .tp = 2}, .sequence_parallel = true, .mtp = true},
    {.shape = {.shard = 2, .cp = 2, .tp = 2, .ep = 2},
     .zero = Zero::parameters,
     .sequence_parallel = true,
     .experts = 4,
     .mtp = true},
    {.shape = {.pp = 2, .shard = 2, .tp = 2, .ep = 2},
     .zero = Zero::optimizer,
     .sequence_parallel = true,
     .schedule = ScheduleKind::zb_h1,
     .accumulation = 4,
     .recompute = {RecomputePolicy::What::block},
     .experts = 4,
     .mtp = true},
    {.shape = {.shard = 2},
     .zero = Zero::parameters,
     .offload_optimizer = OffloadTo::host,
     .offload_parameters = OffloadTo::host,
     .offload_activations = OffloadTo::host,
     .mtp = true},
    {.shape = {.pp = 2, .tp = 2}, .accumulation = 2, .precision = Precision::bf16, .mtp = true},
};

class EqualToOneRankTest : public testing::TestWithParam<MeshCase> {};
INSTANTIATE_TEST_SUITE_P(Meshes, EqualToOneRankTest, testing::ValuesIn(kMeshCases), mesh_case_name);
INSTANTIATE_TEST_SUITE_P(DeltaRule, EqualToOneRankTest, testing::ValuesIn(kDeltaCases), mesh_case_name);
INSTANTIATE_TEST_SUITE_P(KimiLinear, EqualToOneRankTest, testing::ValuesIn(kKimiCases), mesh_case_name);
INSTANTIATE_TEST_SUITE_P(SelectiveStates, EqualToOneRankTest, testing::ValuesIn(kSelectiveCases), mesh_case_name);
INSTANTIATE_TEST_SUITE_P(SideBySide, EqualToOneRankTest, testing::ValuesIn(kBesideCases), mesh_case_name);
INSTANTIATE_TEST_SUITE_P(Heads, EqualToOneRankTest, testing::ValuesIn(kHeadCases), mesh_case_name);
INSTANTIATE_TEST_SUITE_P(LearnedActivations, EqualToOneRankTest, testing::ValuesIn(kLearnedActivationCases),
                         mesh_case_name);
INSTANTIATE_TEST_SUITE_P(PreNormStates, EqualToOneRankTest, testing::ValuesIn(kPreNormCases), mesh_case_name);
INSTANTIATE_TEST_SUITE_P(GatedAttention, EqualToOneRankTest, testing::ValuesIn(kGatedCases), mesh_case_name);
INSTANTIATE_TEST_SUITE_P(SparseAttention, EqualToOneRankTest, testing::ValuesIn(kSparseCases), mesh_case_name);
INSTANTIATE_TEST_SUITE_P(GatedConvs, EqualToOneRankTest, testing::ValuesIn(kConvCases), mesh_case_name);
INSTANTIATE_TEST_SUITE_P(SingleParts, EqualToOneRankTest, testing::ValuesIn(kSingleCases), mesh_case_name);
INSTANTIATE_TEST_SUITE_P(Gemma4, EqualToOneRankTest, testing::ValuesIn(kGemma4Cases), mesh_case_name);
INSTANTIATE_TEST_SUITE_P(FurtherOn, EqualToOneRankTest, testing::ValuesIn(kMtpCases), mesh_case_name);

TEST_P(EqualToOneRankTest, LossGradientsAndWeights) { expect_equal_to_one_rank(GetParam()); }

}  // namespace
}  // namespace weft
