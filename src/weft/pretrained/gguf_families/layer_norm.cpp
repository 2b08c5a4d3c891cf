// GPT-2, StarCoder2 and StableLM, whose norms are LayerNorms.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_layer_norm {
namespace {

constexpr Layout kQuery{.part = Part::query}, kKey{.part = Part::key}, kValue{.part = Part::value};

constexpr NameRow kGpt2Names[] = {
    {"embedding", "token_embd"},
    {"position", "position_embd"},
    {"layers.#.attention_norm", "blk.#.attn_norm"},
    {"layers.#.attention.query", "blk.#.attn_qkv", kQuery},
    {"layers.#.attention.key", "blk.#.attn_qkv", kKey},
    {"layers.#.attention.value", "blk.#.attn_qkv", kValue},
    {"layers.#.attention.output", "blk.#.attn_output"},
    {"layers.#.mlp_norm", "blk.#.ffn_norm"},
    {"layers.#.mlp.up", "blk.#.ffn_up"},
    {"layers.#.mlp.down", "blk.#.ffn_down"},
    {"final_norm", "output_norm"},
    {"head", "output"},
};

void gpt2_fields(GgufFields& f, ModelConfig& c) {
  gguf_shape_fields(f, c);
  f.number("attention.layer_norm_epsilon", c.norm_eps);
  gguf_bias_fields(f, c);
  if (f.is_reading()) c.norm_bias = true;
}

void starcoder2_fields(GgufFields& f, ModelConfig& c) {
  gguf_shape_fields(f, c);
  f.number("attention.layer_norm_epsilon", c.norm_eps);
  gguf_head_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_window_fields(f, c, 0, 0, false);
  gguf_bias_fields(f, c);
}

void stablelm_fields(GgufFields& f, ModelConfig& c) {
  gguf_shape_fields(f, c);
  f.number("attention.layer_norm_epsilon", c.norm_eps);
  gguf_head_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_bias_fields(f, c);
  bool is_parallel = c.block == BlockKind::parallel_shared;
  f.flag("use_parallel_residual", is_parallel, true);
  c.block = is_parallel ? BlockKind::parallel_shared : BlockKind::pre;
}

}  // namespace
}  // namespace gguf_layer_norm

std::vector<GgufFamily> gguf_layer_norm_families() {
  using namespace gguf_layer_norm;

  return {{"gpt2", "gpt2", gpt2_fields, kGpt2Names},
          {"starcoder2", "starcoder2", starcoder2_fields, gguf_halved_names()},
          {"stablelm", "stablelm", stablelm_fields, gguf_halved_names()}};
}

}  // namespace weft
