// MeshCase: a training run of a small model on some mesh, and its comparison with one rank.
#pragma once
#include "base/temporary_folder.h"
#include "train/training_setup.h"
#include "weft/train/recipe_names.h"
#include "weft/train/verify.h"

namespace weft {

struct MeshCase {
  const char* family = "llama";
  MeshShape shape;
  Zero zero = Zero::none;
  bool sequence_parallel = false;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int virtual_stages = 1;
  int64_t accumulation = 1;
  RecomputePolicy recompute;
  Precision precision = Precision::fp32;
  float dropout = 0;
  bool tie = false;
  int64_t experts = 0;
  ContextMode cp_mode = ContextMode::ring;
  OffloadTo offload_optimizer = OffloadTo::none, offload_parameters = OffloadTo::none,
            offload_activations = OffloadTo::none;
  LoraConfig lora = {};
  GradientType gradients = GradientType::fp32;
  bool mtp = false;
  bool shared_keys = false;  // and inputs of layers
  int64_t expert_latent_dim = 0;
  int64_t streams = 1, mix_steps = 0;
  int steps = 3;
};

// Of a pipeline whose stages are sharded all that may be is elsewhere.
inline const MeshCase kFarStages{.shape = {.pp = 2, .shard = 2},
                                 .zero = Zero::parameters,
                                 .accumulation = 2,
                                 .recompute = {RecomputePolicy::What::block},
                                 .offload_optimizer = OffloadTo::host,
                                 .offload_parameters = OffloadTo::host,
                                 .offload_activations = OffloadTo::disk};

// Beside every projection.
inline const LoraConfig kNf4Adapters{
    .rank = 4, .alpha = 32, .dropout = 0, .targets = kAllTargets, .base = BaseFormat::nf4};

inline const TemporaryFolder& offload_folder() {
  static const TemporaryFolder folder;
  return folder;
}

// Of letters, digits and underscores.
inline std::string name_of(const MeshCase& c) {
  const MeshShape& s = c.shape;
  std::string name = fmt::format("{}{}_{}", c.family,
                                 c.experts > 0 ? "_moe"
                                 : c.tie       ? "_tied"
                                               : "",
                                 kPrecisionNames[int(c.precision)]);
  if (c.gradients == GradientType::bf16) name += "_short_gradients";
  if (c.mtp) name += "_mtp";
  if (c.shared_keys) name += "_shared";
  if (c.expert_latent_dim > 0) name += "_latent";
  if (c.streams > 1) name += c.mix_steps > 0 ? "_mixed_streams" : "_streams";
  const auto add = [&](const char* what, int64_t n, int64_t usual) {
    if (n != usual) name += fmt::format("_{}{}", what, n);
  };
  add("pp", s.pp, 1), add("hsdp", s.replicate, 1), add("dp", s.dp(), 1), add("cp", s.cp, 1), add("tp", s.tp, 1);
  add("ep", s.ep, 1), add("zero", int(c.zero), 0), add("acc", c.accumulation, 1);
  if (c.sequence_parallel) name += "_sp";
  if (s.pp > 1) name += fmt::format("_{}", weft::name_of(c.schedule));
  if (s.cp > 1)
    name += c.cp_mode == ContextMode::ring ? "_ring" : c.cp_mode == ContextMode::ulysses ? "_ulysses" : "_allgather";
  constexpr const char* kRecomputed[] = {"", "_re_attention", "_re_mlp", "_re_block"};
  name += kRecomputed[int(c.recompute.what)];
  add("every", c.recompute.every, 1);
  if (c.dropout > 0) name += "_dropout";
  if (c.lora.rank > 0) name += c.lora.is_dora ? "_dora" : c.lora.dropout > 0 ? "_lora_dropout" : "_lora";
  if (c.lora.base == BaseFormat::nf4) name += "_nf4";
  const auto add_far = [&](const char* what, OffloadTo to) {
    if (to != OffloadTo::none) name += fmt::format("_{}_on_{}", what, to == OffloadTo::host ? "host" : "disk");
  };
  add_far("states", c.offload_optimizer), add_far("params", c.offload_parameters);
  add_far("inputs", c.offload_activations);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

inline std::string mesh_case_name(const testing::TestParamInfo<MeshCase>& info) { return name_of(info.param); }

inline Recipe recipe_of(const MeshCase& c) {
  Recipe r = small_recipe(c.family, c.precision, c.shape.dp(), c.accumulation, 8);
  r.model.layers = 4;
  r.model.tie_embeddings = c.tie;
  r.model.dropout = c.dropout;
  r.model.lora = c.lora;
  if (r.model.has_states()) {
    ModelConfig& m = r.model;
    m.attention_every = m.block == BlockKind::single ? 3 : 2;
    m.state_heads = 8, m.state_key_dim = 6, m.state_value_dim = 4;
    m.state_key_heads = m.has_delta_rule() ? 2 : 1;
    if (m.state_rule == StateKind::kimi_delta) {
      m.kv_heads = m.heads, m.head_dim = 12, m.kv_rank = 20, m.rotary_dim = 4, m.value_dim = 10;
      m.state_value_dim = 5;  // through which gates and decays are made
      complete(m);
    }
  }
  if (r.model.state_beside_attention) {
    ModelConfig& m = r.model;
    m.attention_out_scale = 0.75f, m.state_out_scale = 0.6f, m.mlp_out_scale = 1.25f, m.mlp_gate_scale = 0.8f;
    m.state_input_scales = {0.8, 1.25, 0.75, 0.5, 0.9}, m.state_norm = StateNorm::before_gate;
    complete(m);
  }
  if (r.model.value_norm) {  // Gemma 4
    ModelConfig& m = r.model;
    m.window = 6, m.global_every = 2, m.global_head_dim = 12, m.global_kv_heads = 1, m.global_values_are_keys = true;
    m.experts_beside_dense = c.experts > 0;
    if (c.shared_keys) m.layer_inputs = 10, m.shared_kv_layers = 2, m.shared_kv_ffn = 72;
    complete(m);
  }
  const bool is_hy4 = r.model.family == "hy_v4";
  if (r.model.family == "deepseek_v32" || r.model.family == "glm_moe_dsa" || is_hy4) {
    ModelConfig& m = r.model;
    m.kv_heads = m.heads, m.head_dim = 12, m.kv_rank = 20, m.query_rank = 16, m.rotary_dim = 4, m.value_dim = 10;
    m.index_heads = 4, m.index_head_dim = 8, m.index_topk = 5;
    if (m.family == "glm_moe_dsa") m.index_layers = {0, 2};
    if (is_hy4) m.residual_streams = 3, m.stream_magnitude = 1.7f, m.stream_eps = 0.01f;
    complete(m);
  }
  if (r.model.family == "granite_swa") {
    ModelConfig& m = r.model;
    m.window = 6, m.global_layers = {0, 3}, m.unrotated_layers = {3}, m.local_rope_theta = 5000;
    complete(m);
  }
  if (r.model.family == "lfm3" || r.model.family == "kolibri1") {
    ModelConfig& m = r.model;
    m.head_dim = 8, m.window = 6;
    if (m.family == "kolibri1") m.global_every = m.unrotated_every = 2;
    complete(m);
  }
  if (r.model.family == "minicpm3") {
    ModelConfig& m = r.model;
    m.kv_heads = m.heads, m.head_dim = 12, m.kv_rank = 20, m.query_rank = 16, m.rotary_dim = 4, m.value_dim = 10;
    m.embedding_scale = 3, m.residual_scale = 0.4f, m.logit_scale = 0.5f;
    complete(m);
  }
  if (r.model.family == "hyperclovax") r.model.residual_scale = 0.4f;
  if (r.model.family == "mimo_v2_flash") {
    ModelConfig& m = r.model;
    m.window = 6, m.first_local_layer = 1, m.global_every = 4, m.global_kv_heads = 1, m.value_dim = 6;
    m.global_sinks = false;
    complete(m);
  }
  if (c.experts > 0) {
    ModelConfig& m = r.model;
    m.experts = c.experts, m.shared_experts = m.experts_beside_dense ? 0 : 1, m.expert_ffn = 24;
    m.expert_latent_dim = c.expert_latent_dim;
    // A choice that is all but a tie falls either way when bf16 rounds differently: there every expert is chosen.
    m.experts_per_token = c.precision == Precision::fp32 ? 2 : c.experts;
    m.aux_loss = 0.1f, m.z_loss = 0.01f;
    complete(m);
  }
  if (c.streams > 1) r.model.residual_streams = c.streams, r.model.stream_mix_steps = c.mix_steps;
  if (c.mtp) r.model.mtp_layers = 1, r.model.mtp_loss = 0.5;
  r.mesh.shape = c.shape;
  r.mesh.zero = c.zero;
  r.mesh.cp_mode = c.cp_mode;
  r.mesh.sequence_parallel = c.sequence_parallel;
  r.mesh.schedule = c.schedule;
  r.mesh.virtual_stages = c.virtual_stages;
  r.train.recompute = c.recompute;
  r.train.gradients = c.gradients;
  r.mesh.offload = {.optimizer = c.offload_optimizer,
                    .parameters = c.offload_parameters,
                    .activations = c.offload_activations,
                    .dir = offload_folder().path()};
  return r;
}

// The same training on one rank, without what only meshes need.
inline MeshCase on_one_rank(const MeshCase& c) {
  return {.family = c.family,
          .precision = c.precision,
          .dropout = c.dropout,
          .tie = c.tie,
          .experts = c.experts,
          .lora = c.lora,
          .gradients = c.gradients,
          .mtp = c.mtp,
          .shared_keys = c.shared_keys,
          .expert_latent_dim = c.expert_latent_dim,
          .streams = c.streams,
          .mix_steps = c.mix_steps,
          .steps = c.steps};
}

// The one rank is a CPU's.
inline void expect_equal_to_one_rank(const MeshCase& c, Device device, double tolerance) {
  Recipe one = recipe_of(on_one_rank(c)), recipe = recipe_of(c);
  recipe.mesh.device = device;
  make_comparable(one, batches_of(one));
  recipe.optimizer = one.optimizer;
  const Difference d = difference(train_mesh(recipe, c.steps), train_mesh(one, c.steps));
  EXPECT_LE(d.loss, tolerance);
  EXPECT_LE(d.gradient, tolerance) << d.gradient_name;
  EXPECT_LE(d.weight, tolerance) << d.weight_name;
}
inline void expect_equal_to_one_rank(const MeshCase& c, Device device = Device::cpu) {
  expect_equal_to_one_rank(c, device, tolerance_of(recipe_of(c)));
}

}  // namespace weft
