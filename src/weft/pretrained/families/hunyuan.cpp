// Tencent's Hunyuan as Hugging Face saves it: norms of heads behind rotary positions, whose theta grows by a factor
// of its own; with experts, one more that sees all tokens. Hy3 has norms before positions and experts as DeepSeek-V3.
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_hunyuan {
namespace {

// A stretch for texts of any length ("NTK-aware"), by which theta is told: no other program knows its name.
void rope(HfFields& f, ModelConfig& c) {
  constexpr double kTheta = 10000;
  rope_fields(f, c, kTheta);
  if (!f.is_reading()) return;
  const char* const key = f.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!f.has(key)) return;
  const double alpha = f.from().at(key).number_or("alpha", 0);
  if (c.rope_scaling.kind != RopeScaling::Kind::dynamic || !(alpha > 0)) return;
  c.context = c.rope_scaling.original_context, c.rope_scaling = {};
  const auto dim = double(width_of_head(c));
  c.rope_theta *= std::pow(alpha, dim / (dim - 2));
}

void fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.norm_eps = 1e-5});
  rope(f, c);
  attention_bias_field(f, c);
  f.only("use_cla", false);
  f.only("use_qk_norm", true);
}

// A number, or one to each layer, which must be the same.
void layered_size(HfFields& f, const char* key, int64_t& value, int64_t otherwise) {
  if (!f.has(key) || !f.from().at(key).is_array()) return f.size(key, value, otherwise);
  const JsonView values = f.from().at(key);
  for (int64_t i = 0; i < values.size(); ++i) {
    const int64_t of_layer = values.at(i).integer(0, int64_t(1) << 24);
    if (i > 0 && of_layer != value) f.refuse(key, "all layers must be alike");
    value = of_layer;
  }
}

void moe_fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  fields(f, c);
  f.size("num_experts", c.experts, 1);
  layered_size(f, "moe_topk", c.experts_per_token, 1);
  int64_t shared = 1, width = c.ffn;
  layered_size(f, "num_shared_expert", shared, 1);
  layered_size(f, "moe_intermediate_size", width, c.ffn);
  if (shared != 1) f.refuse("num_shared_expert", "one expert sees all tokens");
  if (width != c.ffn) f.refuse("moe_intermediate_size", "it must be intermediate_size");
  c.shared_experts = shared;
}

void v3_fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 8, .norm_eps = 1e-5});
  rope_fields(f, c, 11158840);
  attention_bias_field(f, c);
  f.only("mlp_bias", false);
  f.size(either(f, "num_experts", "num_local_experts"), c.experts, 192);
  f.size("num_experts_per_tok", c.experts_per_token, 8);
  f.size("num_shared_experts", c.shared_experts, 1);
  f.size("moe_intermediate_size", c.expert_ffn, 1536);
  f.number("router_scaling_factor", c.routed_scale, 2.826);
  sparse_layers_fields(f, c, 1);
}

constexpr NameRow kNorms[] = {{"layers.#.attention.query_norm", "model.layers.#.self_attn.query_layernorm"},
                              {"layers.#.attention.key_norm", "model.layers.#.self_attn.key_layernorm"}};
constexpr NameRow kRouter[] = {{"layers.#.moe.router", "model.layers.#.mlp.gate.wg"}};
constexpr NameRow kV3Router[] = {{"layers.#.moe.router", "model.layers.#.mlp.router.gate"},
                                 {"layers.#.moe.router.bias", "model.layers.#.mlp.expert_bias"}};
constexpr NameRow kShared[] = {{"layers.#.moe.shared.gate", "model.layers.#.mlp.shared_mlp.gate_proj"},
                               {"layers.#.moe.shared.up", "model.layers.#.mlp.shared_mlp.up_proj"},
                               {"layers.#.moe.shared.down", "model.layers.#.mlp.shared_mlp.down_proj"}};

const std::vector<NameRow>& names(const ModelConfig& c) {
  static const std::vector<NameRow> rows =
      joined({std::span(kNorms), std::span(kRouter), std::span(kShared), llama_names(c)});
  return rows;
}
const std::vector<NameRow>& v3_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kV3Router), std::span(kShared), llama_names(c)});
  return rows;
}

}  // namespace
}  // namespace hf_hunyuan

std::vector<HfFamily> hf_hunyuan_families() {
  using namespace hf_hunyuan;

  return {{.family = "hunyuan_v1_dense",
           .model_type = "hunyuan_v1_dense",
           .architecture = "HunYuanDenseV1ForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model."},
          {.family = "hunyuan_v1_moe",
           .model_type = "hunyuan_v1_moe",
           .architecture = "HunYuanMoEV1ForCausalLM",
           .fields = moe_fields,
           .names = names,
           .base = "model."},
          {.family = "hy_v3",
           .model_type = "hy_v3",
           .architecture = "HYV3ForCausalLM",
           .fields = v3_fields,
           .names = v3_names,
           .base = "model.",
           .leaves_layers_behind = true}};
}

}  // namespace weft
