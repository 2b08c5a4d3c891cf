// EXAONE 4 as Hugging Face saves it: norms behind both parts and of heads; the larger model has local layers between
// global ones that know no positions. K-EXAONE has norms before both parts, and experts as DeepSeek-V3 has them.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_exaone {
namespace {

void fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.norm_eps = 1e-5});
  rope_fields(f, c, 10000);
  const bool has_window = window_pattern_fields(f, c, "sliding_window_pattern");
  unrotated_global_layers(f, c, has_window);
}

void moe_fields(HfFields& f, ModelConfig& c) {
  fields(f, c);
  f.size("num_experts", c.experts, 64);
  f.size("num_shared_experts", c.shared_experts, 1);
  f.size("num_experts_per_tok", c.experts_per_token, 8);
  f.size("moe_intermediate_size", c.expert_ffn, 1024);
  f.number("routed_scaling_factor", c.routed_scale, 2.5);
  f.size("n_group", c.expert_groups, 1);
  f.size("topk_group", c.groups_per_token, 1);
  f.flag("norm_topk_prob", c.norm_topk, true);
  sparse_layers_fields(f, c, 1);
}

constexpr NameRow kRouterBias[] = {{"layers.#.moe.router.bias", "model.layers.#.mlp.e_score_correction_bias"}};
const std::vector<NameRow>& moe_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kRouterBias), std::span(llama_names(c))});
  return rows;
}

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), post_norm_names(), attention_names(), gated_names()});
  return rows;
}

}  // namespace
}  // namespace hf_exaone

std::vector<HfFamily> hf_exaone_families() {
  using namespace hf_exaone;

  return {{.family = "exaone4",
           .model_type = "exaone4",
           .architecture = "Exaone4ForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model."},
          {.family = "exaone_moe",
           .model_type = "exaone_moe",
           .architecture = "ExaoneMoeForCausalLM",
           .fields = moe_fields,
           .names = moe_names,
           .base = "model.",
           .ignored = {"mtp.*"}}};
}

}  // namespace weft
