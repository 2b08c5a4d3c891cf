// DeepSeek-V2 and V3, and others with latent attention, GLM-4.7-Flash among them; and GLM-5, whose rows select keys.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_deepseek {
namespace {

// A tenth of what the stretch multiplies angles by, and scores.
void stretch_field(GgufFields& f, RopeScaling& s) {
  constexpr const char* kKey = "rope.scaling.yarn_log_multiplier";
  if (s.kind != RopeScaling::Kind::yarn) return;
  double tenth = s.mscale_all / 10;
  if (f.is_reading() || tenth > 0) f.number(kKey, tenth, 0);
  if (f.is_reading()) s.mscale = s.mscale_all = tenth * 10;
}

void fields(GgufFields& f, ModelConfig& c) {
  gguf_shape_fields(f, c);
  f.number("attention.layer_norm_rms_epsilon", c.norm_eps);
  gguf_latent_fields(f, c);
  f.number("rope.freq_base", c.rope_theta, 10000);
  gguf_scaling_fields(f, c);
  stretch_field(f, c.rope_scaling);
  gguf_further_layers_field(f, c);
  gguf_deepseek_expert_fields(f, c, false);
  gguf_router_field(f, c, f.from().has_router_bias ? RouterGate::sigmoid : RouterGate::softmax);
}

void glm_dsa_fields(GgufFields& f, ModelConfig& c) {
  fields(f, c);
  f.size("attention.indexer.head_count", c.index_heads);
  f.size("attention.indexer.key_length", c.index_head_dim);
  f.size("attention.indexer.top_k", c.index_topk);
  if (!c.index_layers.empty()) throw Error("files of this kind have an index in every layer");
}

constexpr NameRow kIndex[] = {
    {"layers.#.attention.index.query", "blk.#.indexer.attn_q_b", {.part = Part::index}},
    {"layers.#.attention.index.key", "blk.#.indexer.attn_k", {.part = Part::index}},
    {"layers.#.attention.index.key_norm", "blk.#.indexer.k_norm", {.part = Part::index}},
    {"layers.#.attention.index.weights", "blk.#.indexer.proj"},
};
constexpr NameRow kAttention[] = {
    {"layers.#.attention.query_down", "blk.#.attn_q_a"},
    {"layers.#.attention.query_norm", "blk.#.attn_q_a_norm"},
    {"layers.#.attention.latent", "blk.#.attn_kv_a_mqa", {.part = Part::latent}},
    {"layers.#.attention.key_rotary", "blk.#.attn_kv_a_mqa", {.part = Part::key_rotary}},
    {"layers.#.attention.latent_norm", "blk.#.attn_kv_a_norm"},
    {"layers.#.attention.key", "blk.#.attn_k_b", {.is_transposed = true, .is_by_head = true}},
    {"layers.#.attention.value", "blk.#.attn_v_b", {.is_by_head = true}},
};
constexpr NameRow kQuery[] = {{"layers.#.attention.query", "blk.#.attn_q_b", {.part = Part::latent_query}}};
constexpr NameRow kDirectQuery[] = {{"layers.#.attention.query", "blk.#.attn_q", {.part = Part::latent_query}}};

std::span<const NameRow> names(const ModelConfig& c) {
  const auto rows_with = [&](int64_t query_rank) {
    return joined({gguf_latent_names({.query_rank = query_rank}), gguf_halved_names(c)});
  };
  static const std::vector<NameRow> rows = rows_with(1), direct = rows_with(0);
  return c.query_rank > 0 ? rows : direct;
}

std::span<const NameRow> glm_dsa_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kIndex), names(c)});
  return rows;
}

}  // namespace
}  // namespace gguf_deepseek

void gguf_latent_fields(GgufFields& f, ModelConfig& c) {
  constexpr const char *kKeyHeads = "attention.head_count_kv", *kQueryRank = "attention.q_lora_rank";
  if (f.is_reading()) {
    if (c.kv_heads != 1)
      f.refuse(kKeyHeads, "files that hold keys and values in one tensor are not read: convert the model again");
    c.kv_heads = c.heads;
  } else {
    c.kv_heads = 1;
    f.set(kKeyHeads, c.kv_heads);
    f.set("attention.key_length", c.kv_rank + c.rotary_dim);
    f.set("attention.value_length", c.kv_rank);
  }
  if (f.is_reading() || c.query_rank > 0) f.size(kQueryRank, c.query_rank, 0);
  c.value_dim = c.values_dim();
  f.size("attention.kv_lora_rank", c.kv_rank);
  f.size("attention.key_length_mla", c.head_dim);
  f.size("attention.value_length_mla", c.value_dim);
  f.size("rope.dimension_count", c.rotary_dim);
}

std::span<const NameRow> gguf_latent_names(const ModelConfig& c) {
  using namespace gguf_deepseek;
  static const std::vector<NameRow> rows = joined({kQuery, kAttention}), direct = joined({kDirectQuery, kAttention});
  return c.query_rank > 0 ? rows : direct;
}

std::vector<GgufFamily> gguf_deepseek_families() {
  using namespace gguf_deepseek;

  return {{"deepseek2", "deepseek_v2", fields, names}, {"glm-dsa", "glm_moe_dsa", glm_dsa_fields, glm_dsa_names}};
}

}  // namespace weft
