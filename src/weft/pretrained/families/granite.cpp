// IBM's Granite as Hugging Face saves it: Llama with a factor at each end and at each sum; with experts, those of a
// layer in two tensors; of version 4, with layers of Mamba-2 between those that attend; GraniteSWA with local layers
// and sinks. And NAVER's HyperCLOVA X, which has norms behind both parts, too.
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_granite {
namespace {

// Logits are divided by a number, which is mostly a whole one.
void logit_scale_field(HfFields& f, ModelConfig& c) {
  double divisor = 1 / double(c.logit_scale);
  if (std::abs(divisor - std::round(divisor)) < 1e-4 * divisor) divisor = std::round(divisor);
  f.number("logits_scaling", divisor, 1);
  if (!(divisor > 0)) f.refuse("logits_scaling", "it must be above 0");
  c.logit_scale = float(1 / divisor);
}

// scale: of scores, where a file does not say it; 0: as elsewhere.
void common_fields(HfFields& f, ModelConfig& c, const Absent& absent, double scale) {
  llama_shape_fields(f, c, absent);
  rope_fields(f, c, 10000);
  attention_bias_field(f, c);
  f.flag("mlp_bias", c.mlp_bias, false);
  if (!f.is_reading() && c.attention_scale == 0) c.attention_scale = float(1 / std::sqrt(double(c.head_dim)));
  f.number("attention_multiplier", c.attention_scale, scale);
  f.number("embedding_multiplier", c.embedding_scale, 1);
  f.number("residual_multiplier", c.residual_scale, 1);
}

void fields(HfFields& f, ModelConfig& c, const Absent& absent) {
  common_fields(f, c, absent, 1);
  logit_scale_field(f, c);
}
void fields(HfFields& f, ModelConfig& c) { fields(f, c, {}); }

// Logits are multiplied by what Granite's are divided by.
void clova_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c, {}, 0);
  f.number("logits_scaling", c.logit_scale, 1);
  bool has_norms_behind = c.block == BlockKind::both;
  f.flag("use_post_norm", has_norms_behind, true);
  if (f.is_reading()) c.block = has_norms_behind ? BlockKind::both : BlockKind::pre;
}

void moe_fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  fields(f, c);
  f.size("num_local_experts", c.experts, 8);
  f.size("num_experts_per_tok", c.experts_per_token, 2);
  balance_loss_field(f, c);
}

// The expert that sees all tokens is the MLP where there are no others.
void shared_field(HfFields& f, ModelConfig& c, int64_t absent) {
  constexpr const char* kShared = "shared_intermediate_size";
  int64_t shared = c.experts > 0 ? c.shared_experts * c.expert_ffn : c.ffn;
  f.size(kShared, shared, absent);
  if (f.is_reading() && c.experts == 0) c.ffn = shared;
  if (!f.is_reading() || c.experts == 0) return;
  if (c.ffn <= 0 || shared % c.ffn != 0) f.refuse(kShared, "it must be a multiple of intermediate_size");
  c.shared_experts = shared / c.ffn;
}

void shared_fields(HfFields& f, ModelConfig& c) {
  moe_fields(f, c);
  shared_field(f, c, 0);
}

// Theta of every layer, 0 of those that know no positions.
void layer_angles_field(HfFields& f, ModelConfig& c) {
  constexpr const char* kThetas = "layer_rope_theta";
  if (!f.is_reading()) {
    nlohmann::json& thetas = f.to()[kThetas] = nlohmann::json::array();
    const double local = c.local_rope_theta > 0 ? c.local_rope_theta : c.rope_theta;
    for (int64_t i = 0; i < c.layers; ++i)
      thetas.push_back(!c.is_rotated(i) ? 0 : c.is_local(i) ? local : c.rope_theta);
    return;
  }
  if (!f.has(kThetas)) return;
  const JsonView told = f.from().at(kThetas);
  if (told.size() != c.layers) f.refuse(kThetas, "it must tell every layer");
  double local = 0, global = 0;
  std::vector<bool> is_rotated;
  for (int64_t i = 0; i < c.layers; ++i) {
    const double theta = told.at(i).number();
    is_rotated.push_back(theta != 0);
    double& of_kind = c.is_local(i) ? local : global;
    if (theta != 0 && of_kind != 0 && theta != of_kind) f.refuse(kThetas, "layers of one kind must turn alike");
    if (theta != 0) of_kind = theta;
  }
  set_unrotated_layers(c, is_rotated);
  if (global == 0) global = local;
  if (global != 0) c.rope_theta = global;
  if (local == 0 || local == global) return;
  c.local_rope_theta = local;
  if (c.rope_scaling.kind != RopeScaling::Kind::none)
    f.refuse(kThetas, "where angles are scaled it must be the same of local and global layers");
}

constexpr int64_t kWindow = 128;

void swa_fields(HfFields& f, ModelConfig& c) {
  fields(f, c, {.kv_heads = 4, .norm_eps = 1e-5, .is_tied = true});
  first_of_four_global_fields(f, c, kWindow);
  layer_angles_field(f, c);
}

void moe_swa_fields(HfFields& f, ModelConfig& c) {
  shared_fields(f, c);
  first_of_four_global_fields(f, c, kWindow);
  layer_angles_field(f, c);
}

void hybrid_fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading() && c.experts > 0) c.ffn = c.expert_ffn;
  fields(f, c);
  f.size("num_local_experts", c.experts, 8);
  shared_field(f, c, 1024);
  if (c.experts > 0) {
    f.size("num_experts_per_tok", c.experts_per_token, 2);
    balance_loss_field(f, c);
  }
  if (!attending_layers_field(f, c, "attention", "mamba"))
    set_attending_layers(c, std::vector<bool>(size_t(c.layers), false));
  if (c.has_states())
    mamba_fields(f, c);
  else if (!f.is_reading())
    f.to()["mamba_n_heads"] = 1;  // which divides every width, as the library asks of models without such layers too
  // Any other word, and none: attention knows no positions.
  bool is_rotated = c.unrotated_every == 0;
  f.choice<bool>("position_embedding_type", is_rotated, {{"rope", true}, {"nope", false}}, "nope");
  c.unrotated_every = is_rotated ? 0 : 1;
}

constexpr NameRow kExperts[] = {
    {"layers.#.moe.router", "model.layers.#.block_sparse_moe.router.layer"},
    {"layers.#.moe.experts.gate", "model.layers.#.block_sparse_moe.input_linear", {.part = Part::gate}},
    {"layers.#.moe.experts.up", "model.layers.#.block_sparse_moe.input_linear", {.part = Part::up}},
    {"layers.#.moe.experts.down", "model.layers.#.block_sparse_moe.output_linear"},
};
const std::vector<NameRow>& moe_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kExperts), llama_names(c)});
  return rows;
}

constexpr NameRow kShared[] = {
    {"layers.#.mlp.gate", "model.layers.#.shared_mlp.input_linear", {.part = Part::gate}},
    {"layers.#.mlp.up", "model.layers.#.shared_mlp.input_linear", {.part = Part::up}},
    {"layers.#.mlp.down", "model.layers.#.shared_mlp.output_linear"},
    {"layers.#.moe.shared.gate", "model.layers.#.shared_mlp.input_linear", {.part = Part::gate}},
    {"layers.#.moe.shared.up", "model.layers.#.shared_mlp.input_linear", {.part = Part::up}},
    {"layers.#.moe.shared.down", "model.layers.#.shared_mlp.output_linear"},
};
const std::vector<NameRow>& shared_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kShared), std::span(moe_names(c))});
  return rows;
}
const std::vector<NameRow>& hybrid_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({mamba_names(), std::span(shared_names(c))});
  return rows;
}

constexpr NameRow kSinks[] = {{"layers.#.attention.sinks", "model.layers.#.self_attn.sinks"}};
// Of later models, which the library saves as it holds them.
constexpr NameRow kStacks[] = {
    {"layers.#.moe.router", "model.layers.#.block_sparse_moe.router"},
    {"layers.#.moe.experts.gate.weight",
     "model.layers.#.block_sparse_moe.experts.gate_up_proj",
     {.part = Part::gate}},
    {"layers.#.moe.experts.up.weight", "model.layers.#.block_sparse_moe.experts.gate_up_proj", {.part = Part::up}},
    {"layers.#.moe.experts.down.weight", "model.layers.#.block_sparse_moe.experts.down_proj"},
};
const std::vector<NameRow>& swa_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kSinks), llama_names(c)});
  return rows;
}
const std::vector<NameRow>& moe_swa_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows =
      joined({std::span(kSinks), std::span(kStacks), std::span(shared_names(c))});
  return rows;
}

constexpr NameRow kNormsBehind[] = {{"layers.#.attention_post_norm", "model.layers.#.post_norm1"},
                                    {"layers.#.mlp_post_norm", "model.layers.#.post_norm2"}};
const std::vector<NameRow>& clova_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kNormsBehind), llama_names(c)});
  return rows;
}

}  // namespace
}  // namespace hf_granite

std::vector<HfFamily> hf_granite_families() {
  using namespace hf_granite;

  return {{.family = "granite",
           .model_type = "granite",
           .architecture = "GraniteForCausalLM",
           .fields = fields,
           .names = llama_names,
           .base = "model."},
          {.family = "granitemoe",
           .model_type = "granitemoe",
           .architecture = "GraniteMoeForCausalLM",
           .fields = moe_fields,
           .names = moe_names,
           .base = "model."},
          {.family = "granitemoehybrid",
           .model_type = "granitemoehybrid",
           .architecture = "GraniteMoeHybridForCausalLM",
           .fields = hybrid_fields,
           .names = hybrid_names,
           .base = "model."},
          {.family = "granitemoeshared",
           .model_type = "granitemoeshared",
           .architecture = "GraniteMoeSharedForCausalLM",
           .fields = shared_fields,
           .names = shared_names,
           .base = "model."},
          {.family = "granite_swa",
           .model_type = "granite_swa",
           .architecture = "GraniteSWAForCausalLM",
           .fields = swa_fields,
           .names = swa_names,
           .base = "model."},
          {.family = "granitemoe_swa",
           .model_type = "granitemoe_swa",
           .architecture = "GraniteMoeSWAForCausalLM",
           .fields = moe_swa_fields,
           .names = moe_swa_names,
           .base = "model."},
          {.family = "hyperclovax",
           .model_type = "hyperclovax",
           .architecture = "HyperCLOVAXForCausalLM",
           .fields = clova_fields,
           .names = clova_names,
           .base = "model."}};
}

}  // namespace weft
