// gpt-oss as Hugging Face saves it: sinks, experts with biases in stacks whose gates and ups are neighbours, and
// their weights as MXFP4 codes or plain.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_gpt_oss {
namespace {

void only_number(HfFields& f, const char* key, float known) {
  float value = known;
  f.number(key, value, double(known));
  if (value != known) f.refuse(key, fmt::format("only {} is", known));
}

void fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  common_shape_fields(f, c);
  f.size("num_key_value_heads", c.kv_heads, 8);
  f.size("head_dim", c.head_dim, 64);
  f.number("rms_norm_eps", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  f.only("hidden_act", "silu");
  only_number(f, "swiglu_limit", kOaiLimit);
  only_number(f, "swiglu_alpha", 1.702f);
  rope_fields(f, c, 150000);
  f.flag("attention_bias", c.qkv_bias, true);
  c.output_bias = c.qkv_bias;
  window_field(f, c, 128);
  layer_types_field(f, c);
  f.size("num_local_experts", c.experts, 128);
  f.size("num_experts_per_tok", c.experts_per_token, 4);
}

constexpr NameRow kSinks[] = {{"layers.#.attention.sinks", "model.layers.#.self_attn.sinks"}};
constexpr NameRow kRouter[] = {
    {"layers.#.moe.router.weight", "model.layers.#.mlp.router.weight"},
    {"layers.#.moe.router.logit_bias", "model.layers.#.mlp.router.bias"},
    {"layers.#.moe.experts.gate.bias", "model.layers.#.mlp.experts.gate_up_proj_bias", {.part = Part::even}},
    {"layers.#.moe.experts.up.bias", "model.layers.#.mlp.experts.gate_up_proj_bias", {.part = Part::odd}},
    {"layers.#.moe.experts.down.bias", "model.layers.#.mlp.experts.down_proj_bias"},
};
constexpr NameRow kExperts[] = {
    {"layers.#.moe.experts.gate.weight",
     "model.layers.#.mlp.experts.gate_up_proj",
     {.part = Part::even, .is_transposed = true}},
    {"layers.#.moe.experts.up.weight",
     "model.layers.#.mlp.experts.gate_up_proj",
     {.part = Part::odd, .is_transposed = true}},
    {"layers.#.moe.experts.down.weight", "model.layers.#.mlp.experts.down_proj", {.is_transposed = true}},
};
constexpr NameRow kCodedExperts[] = {
    {"layers.#.moe.experts.gate.weight", "model.layers.#.mlp.experts.gate_up_proj_blocks", {.part = Part::even}},
    {"layers.#.moe.experts.up.weight", "model.layers.#.mlp.experts.gate_up_proj_blocks", {.part = Part::odd}},
    {"layers.#.moe.experts.down.weight", "model.layers.#.mlp.experts.down_proj_blocks"},
};

std::vector<NameRow> rows_with(std::span<const NameRow> experts) {
  return joined({outer_names(), pre_norm_names(), attention_names(), std::span(kSinks), std::span(kRouter), experts});
}
const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows = rows_with(kExperts);
  return rows;
}
const std::vector<NameRow>& names_of_codes(const ModelConfig&) {
  static const std::vector<NameRow> rows = rows_with(kCodedExperts);
  return rows;
}

}  // namespace
}  // namespace hf_gpt_oss

std::vector<HfFamily> hf_gpt_oss_families() {
  using namespace hf_gpt_oss;

  return {{.family = "gpt_oss",
           .model_type = "gpt_oss",
           .architecture = "GptOssForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model.",
           .names_of_stacks = names_of_codes}};
}

}  // namespace weft
