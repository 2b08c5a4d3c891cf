// Phi-3: query, key and value in one tensor, gate and up in one.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_phi {
namespace {

constexpr Layout kQuery{.part = Part::query}, kKey{.part = Part::key}, kValue{.part = Part::value};

constexpr NameRow kPhi3Names[] = {
    {"embedding", "token_embd"},
    {"layers.#.attention_norm", "blk.#.attn_norm"},
    {"layers.#.attention.query", "blk.#.attn_qkv", kQuery},
    {"layers.#.attention.key", "blk.#.attn_qkv", kKey},
    {"layers.#.attention.value", "blk.#.attn_qkv", kValue},
    {"layers.#.attention.output", "blk.#.attn_output"},
    {"layers.#.mlp_norm", "blk.#.ffn_norm"},
    {"layers.#.mlp.gate", "blk.#.ffn_up", {.part = Part::gate}},
    {"layers.#.mlp.up", "blk.#.ffn_up", {.part = Part::up}},
    {"layers.#.mlp.down", "blk.#.ffn_down"},
    {"final_norm", "output_norm"},
    {"head", "output"},
};

void phi3_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c, true);
  gguf_window_fields(f, c, 0, 0, false);
}

}  // namespace
}  // namespace gguf_phi

std::vector<GgufFamily> gguf_phi_families() {
  using namespace gguf_phi;

  return {{"phi3", "phi3", phi3_fields, kPhi3Names}};
}

}  // namespace weft
