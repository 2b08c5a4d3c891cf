// GPT-2 as Hugging Face saves it: matrices are [in, out], and query, key and value are one of them; and StarCoder,
// with matrices as they are elsewhere and one key/value head.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_gpt2 {
namespace {

void common_fields(HfFields& f, ModelConfig& c, std::string_view activation) {
  f.size("vocab_size", c.vocab);
  f.size("n_embd", c.hidden);
  f.size("n_layer", c.layers);
  f.size("n_head", c.heads);
  f.size("n_inner", c.ffn, 0);
  activation_field(f, "activation_function", c.activation, activation);
  f.number("layer_norm_epsilon", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, true);
  f.only("scale_attn_weights", true);
  f.only("add_cross_attention", false);
}

void fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c, "gelu_new");
  if (f.is_reading() && !f.has("n_positions") && f.has("n_ctx"))
    f.size("n_ctx", c.context);
  else
    f.size("n_positions", c.context, 1024);
  f.only("scale_attn_by_inverse_layer_idx", false);
  f.only("reorder_and_upcast_attn", false);
}

void bigcode_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c, "gelu_pytorch_tanh");
  f.size("n_positions", c.context, 1024);
  f.only("multi_query", true);
  c.kv_heads = 1;
}

constexpr NameRow kNames[] = {
    {"embedding", "transformer.wte"},
    {"position", "transformer.wpe"},
    {"layers.#.attention_norm", "transformer.h.#.ln_1"},
    {"layers.#.attention.query", "transformer.h.#.attn.c_attn", {.part = Part::query, .is_transposed = true}},
    {"layers.#.attention.key", "transformer.h.#.attn.c_attn", {.part = Part::key, .is_transposed = true}},
    {"layers.#.attention.value", "transformer.h.#.attn.c_attn", {.part = Part::value, .is_transposed = true}},
    {"layers.#.attention.output", "transformer.h.#.attn.c_proj", {.is_transposed = true}},
    {"layers.#.mlp_norm", "transformer.h.#.ln_2"},
    {"layers.#.mlp.up", "transformer.h.#.mlp.c_fc", {.is_transposed = true}},
    {"layers.#.mlp.down", "transformer.h.#.mlp.c_proj", {.is_transposed = true}},
    {"final_norm", "transformer.ln_f"},
    {"head", "lm_head"},
};

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows = joined({std::span(kNames)});
  return rows;
}
const std::vector<NameRow>& bigcode_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = [&] {
    std::vector<NameRow> same = names(c);
    for (NameRow& row : same) row.layout.is_transposed = false;
    return same;
  }();
  return rows;
}

}  // namespace
}  // namespace hf_gpt2

std::vector<HfFamily> hf_gpt2_families() {
  using namespace hf_gpt2;

  return {{.family = "gpt2",
           .model_type = "gpt2",
           .architecture = "GPT2LMHeadModel",
           .fields = fields,
           .names = names,
           .base = "transformer.",
           .ignored = {"transformer.h.#.attn.bias", "transformer.h.#.attn.masked_bias"}},
          {.family = "gpt_bigcode",
           .model_type = "gpt_bigcode",
           .architecture = "GPTBigCodeForCausalLM",
           .fields = bigcode_fields,
           .names = bigcode_names,
           .base = "transformer.",
           .ignored = {"transformer.h.#.attn.bias"}}};
}

}  // namespace weft
