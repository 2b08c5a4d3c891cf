// Cohere's Command models as Hugging Face saves them: one norm before both parts, side by side; in the second
// generation local layers between global ones that know no positions, of Command A+ with experts behind dense layers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_cohere {
namespace {

void common_fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.number("layer_norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, true);
  activation_field(f, "hidden_act", c.activation, "silu");
  attention_bias_field(f, c);
  f.number("logit_scale", c.logit_scale, 0.0625);
}

void cohere_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  rope_fields(f, c, 500000);
  f.only("use_qk_norm", false);
}

void cohere2_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  rope_fields(f, c, 10000);
  window_pattern_fields(f, c, "sliding_window_pattern");
  unrotated_global_layers(f, c, true);
}

// What shared experts give is added to what the others do, or the mean of both is taken: half of each.
bool is_mean(const ModelConfig& c) { return c.shared_experts > 0 && c.routed_scale == 0.5f; }

void expert_fields(HfFields& f, ModelConfig& c) {
  f.size("num_experts", c.experts, 8);
  f.size("num_experts_per_tok", c.experts_per_token, 2);
  f.size("num_shared_experts", c.shared_experts, 0);
  bool takes_mean = is_mean(c);
  f.choice<bool>("shared_expert_combination_strategy", takes_mean, {{"average", true}, {"sum", false}}, "average");
  if (f.is_reading()) c.routed_scale = takes_mean && c.shared_experts > 0 ? 0.5f : 1;
  f.choice<RouterGate>("expert_selection_fn", c.router,
                       {{"softmax", RouterGate::softmax}, {"sigmoid", RouterGate::sigmoid}}, "softmax");
  f.flag("norm_topk_prob", c.norm_topk, true);
  if (f.is_reading() && c.router == RouterGate::softmax) c.norm_topk = true;  // it is of those that are chosen
}

// Which layers are local, and where positions are known: in these; and in dense ones that all see the whole text.
void layer_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kPrefix = "prefix_dense_sliding_window_pattern", *kEvery = "sliding_window_pattern";
  const auto is_turned_all_the_same = [&](int64_t i) { return !c.has_experts(i) && !c.is_local(i); };
  int64_t prefix = 1, every = 4, dense = 0;
  if (!f.is_reading()) {
    window_field(f, c, 0);
    layer_types_field(f, c);
    for (int64_t i = 0; i < c.layers; ++i)
      if (is_turned_all_the_same(i) && !c.is_rotated(i)) prefix = 2;
    f.size(kPrefix, prefix);
    return;
  }
  window_field(f, c, 4096);
  f.size(kPrefix, prefix, 1), f.size(kEvery, every, 4), f.size("first_k_dense_replace", dense, 0);
  if (prefix < 1) f.refuse(kPrefix, "it must be at least 1");
  if (every < 1) f.refuse(kEvery, "it must be at least 1");
  layer_types_field(f, c);
  std::vector<bool> is_local, is_rotated;
  for (int64_t i = 0; i < c.layers; ++i)
    is_local.push_back(i < dense ? (i + 1) % prefix != 0 : (i - dense + 1) % every != 0);
  if (c.window > 0 && !f.has("layer_types")) set_local_layers(c, is_local);
  for (int64_t i = 0; i < c.layers; ++i)
    is_rotated.push_back(c.is_local(i) || (prefix == 1 && is_turned_all_the_same(i)));
  set_unrotated_layers(c, is_rotated);
}

// Norms are RMSNorms where a file says their eps. The width is that of an expert.
void cohere2_moe_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kRmsEps = "rms_norm_eps", *kDense = "prefix_dense_intermediate_size";
  int64_t dense = c.ffn;
  if (!f.is_reading() && c.experts > 0) c.ffn = c.expert_ffn;
  common_fields(f, c);
  f.size("head_dim", c.head_dim, 128);
  rope_fields(f, c, 10000);
  if (f.is_reading()) c.expert_ffn = dense = c.ffn, c.norm = f.has(kRmsEps) ? NormKind::rms : NormKind::layer;
  f.size(kDense, dense, dense);
  c.ffn = dense;
  if (c.norm == NormKind::rms)
    f.number(kRmsEps, c.norm_eps, 1e-5);
  else if (!f.is_reading())
    f.to()[kRmsEps] = nullptr;
  expert_fields(f, c);
  sparse_layers_fields(f, c, 0);
  layer_fields(f, c);
}

constexpr NameRow kNorm[] = {{"layers.#.attention_norm", "model.layers.#.input_layernorm"}};

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), std::span(kNorm), paired_attention_names(), gated_names()});
  return rows;
}

constexpr NameRow kTwice[] = {
    {"layers.#.moe.shared.down", "model.layers.#.mlp.shared_experts.down_proj", {.values = ValueMap::doubled}}};
const std::vector<NameRow>& moe_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(names(c)), expert_names()}),
                                    halves = joined({std::span(kTwice), std::span(rows)});
  return is_mean(c) ? halves : rows;
}

}  // namespace
}  // namespace hf_cohere

std::vector<HfFamily> hf_cohere_families() {
  using namespace hf_cohere;

  return {{.family = "cohere",
           .model_type = "cohere",
           .architecture = "CohereForCausalLM",
           .fields = cohere_fields,
           .names = names,
           .base = "model."},
          {.family = "cohere2",
           .model_type = "cohere2",
           .architecture = "Cohere2ForCausalLM",
           .fields = cohere2_fields,
           .names = names,
           .base = "model."},
          {.family = "cohere2_moe",
           .model_type = "cohere2_moe",
           .architecture = "Cohere2MoeForCausalLM",
           .fields = cohere2_moe_fields,
           .names = moe_names,
           .base = "model."}};
}

}  // namespace weft
