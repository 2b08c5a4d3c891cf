// StarCoder2 as Hugging Face saves it: LayerNorms, biases everywhere and a feed-forward part without a gate.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_starcoder {
namespace {

void fields(HfFields& f, ModelConfig& c) {
  common_shape_fields(f, c);
  f.size("num_key_value_heads", c.kv_heads, 2);
  f.number("norm_epsilon", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, true);
  activation_field(f, "hidden_act", c.activation, "gelu_pytorch_tanh");
  rope_fields(f, c, 10000);
  window_field(f, c);
  bool has_bias = c.has_qkv_bias();
  f.flag("use_bias", has_bias, true);
  c.qkv_bias = c.output_bias = c.mlp_bias = has_bias;
  f.only("norm_type", "layer_norm");
  f.only("mlp_type", "default");
}

constexpr NameRow kFeedForward[] = {{"layers.#.mlp.up", "model.layers.#.mlp.c_fc"},
                                    {"layers.#.mlp.down", "model.layers.#.mlp.c_proj"}};

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), pre_norm_names(), attention_names(), std::span(kFeedForward)});
  return rows;
}

}  // namespace
}  // namespace hf_starcoder

std::vector<HfFamily> hf_starcoder_families() {
  using namespace hf_starcoder;

  return {{.family = "starcoder2",
           .model_type = "starcoder2",
           .architecture = "Starcoder2ForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
