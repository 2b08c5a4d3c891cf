// Falcon as Hugging Face saves it, in its three generations: with one key/value head, with groups of them, and with
// as many as queries.
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_falcon {
namespace {

// Who has the keys and values, and how they lie in the one tensor they share with the queries.
void head_fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading()) {
    const bool is_new = c.kv_heads > 1 && c.block != BlockKind::pre;
    bool is_single = c.kv_heads == 1 && c.heads > 1;
    f.to()["new_decoder_architecture"] = is_new;
    f.flag("multi_query", is_single, true);
    f.size("num_kv_heads", c.kv_heads, c.heads);
    return;
  }
  bool is_new = false, is_single = true;
  f.flag("new_decoder_architecture", is_new, false);
  f.flag("multi_query", is_single, true);
  c.kv_heads = is_single ? 1 : c.heads;
  if (is_new) f.size("num_kv_heads", c.kv_heads, c.heads);
}

void block_fields(HfFields& f, ModelConfig& c) {
  bool is_parallel = c.block != BlockKind::pre;
  f.flag("parallel_attn", is_parallel, true);
  if (!f.is_reading()) {
    if (is_parallel) f.to()["num_ln_in_parallel_attn"] = c.block == BlockKind::parallel ? 2 : 1;
    return;
  }
  const bool is_new = f.from().boolean_or("new_decoder_architecture", false);
  if (is_new && !is_parallel) f.refuse("parallel_attn", "the new architecture has its parts side by side");
  int64_t num_norms = is_new ? 2 : 1;
  if (is_new) f.size("num_ln_in_parallel_attn", num_norms, num_norms);
  c.block = !is_parallel ? BlockKind::pre : num_norms == 2 ? BlockKind::parallel : BlockKind::parallel_shared;
}

void fields(HfFields& f, ModelConfig& c) {
  f.size("vocab_size", c.vocab);
  f.size("max_position_embeddings", c.context, 2048);
  f.size("hidden_size", c.hidden);
  f.size("num_hidden_layers", c.layers);
  f.size("num_attention_heads", c.heads);
  f.size("ffn_hidden_size", c.ffn, 4 * c.hidden);
  f.number("layer_norm_epsilon", c.norm_eps, 1e-5);
  f.flag("tie_word_embeddings", c.tie_embeddings, true);
  activation_field(f, "activation", c.activation, "gelu");
  f.flag("bias", c.bias, false);
  f.only("alibi", false);
  head_fields(f, c);
  block_fields(f, c);
  rope_fields(f, c, 10000);
}

constexpr NameRow kShared[] = {
    {"embedding", "transformer.word_embeddings"},
    {"layers.#.attention.output", "transformer.h.#.self_attention.dense"},
    {"layers.#.mlp.up", "transformer.h.#.mlp.dense_h_to_4h"},
    {"layers.#.mlp.down", "transformer.h.#.mlp.dense_4h_to_h"},
    {"final_norm", "transformer.ln_f"},
    {"head", "lm_head"},
};
constexpr NameRow kOneKeyHead[] = {
    {"layers.#.attention.query", "transformer.h.#.self_attention.query_key_value", {.part = Part::query}},
    {"layers.#.attention.key", "transformer.h.#.self_attention.query_key_value", {.part = Part::key}},
    {"layers.#.attention.value", "transformer.h.#.self_attention.query_key_value", {.part = Part::value}},
};
constexpr NameRow kGroups[] = {
    {"layers.#.attention.query",
     "transformer.h.#.self_attention.query_key_value",
     {.part = Part::query, .is_grouped = true}},
    {"layers.#.attention.key",
     "transformer.h.#.self_attention.query_key_value",
     {.part = Part::key, .is_grouped = true}},
    {"layers.#.attention.value",
     "transformer.h.#.self_attention.query_key_value",
     {.part = Part::value, .is_grouped = true}},
};
constexpr NameRow kTwoNorms[] = {{"layers.#.attention_norm", "transformer.h.#.ln_attn"},
                                 {"layers.#.mlp_norm", "transformer.h.#.ln_mlp"}};
constexpr NameRow kNorms[] = {{"layers.#.attention_norm", "transformer.h.#.input_layernorm"},
                              {"layers.#.mlp_norm", "transformer.h.#.post_attention_layernorm"}};

// One key/value head lies behind all queries, which is what a single group would say too.
const std::vector<NameRow>& names(const ModelConfig& c) {
  static const std::vector<NameRow> one = joined({std::span(kShared), std::span(kOneKeyHead), std::span(kNorms)});
  static const std::vector<NameRow> groups = joined({std::span(kShared), std::span(kGroups), std::span(kNorms)});
  static const std::vector<NameRow> two_norms =
      joined({std::span(kShared), std::span(kGroups), std::span(kTwoNorms)});
  if (c.block == BlockKind::parallel) return two_norms;
  return c.kv_heads == 1 ? one : groups;
}

}  // namespace
}  // namespace hf_falcon

std::vector<HfFamily> hf_falcon_families() {
  using namespace hf_falcon;

  return {{.family = "falcon",
           .model_type = "falcon",
           .architecture = "FalconForCausalLM",
           .fields = fields,
           .names = names,
           .base = "transformer."}};
}

}  // namespace weft
