// MiniMax-M2 as Hugging Face saves it: experts by a sigmoid with biases, norms over all heads of queries and keys.
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"

namespace weft {
namespace hf_minimax {
namespace {

// Of a head so many elements turn; later versions write their share.
void rotary_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kTurned = "rotary_dim", *kShare = "partial_rotary_factor";
  rope_fields(f, c, 5e6, kShare);
  if (!f.is_reading())
    f.to()[kTurned] = c.turned_dim();
  else if (f.has(kTurned))
    f.size(kTurned, c.rotary_dim);
}

void fields(HfFields& f, ModelConfig& c) {
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 8});
  rotary_fields(f, c);
  f.size("num_local_experts", c.experts, 256);
  f.size("num_experts_per_tok", c.experts_per_token, 8);
  balance_loss_field(f, c);
  f.only("scoring_func", "sigmoid");
  f.only("use_routing_bias", true);
  f.only("use_qk_norm", true);
  f.only("qk_norm_type", "per_layer");
}

constexpr NameRow kExperts[] = {
    {"layers.#.moe.router", "model.layers.#.block_sparse_moe.gate"},
    {"layers.#.moe.router.bias", "model.layers.#.block_sparse_moe.e_score_correction_bias"},
    {"layers.#.moe.experts.gate", "model.layers.#.block_sparse_moe.experts.@.w1"},
    {"layers.#.moe.experts.up", "model.layers.#.block_sparse_moe.experts.@.w3"},
    {"layers.#.moe.experts.down", "model.layers.#.block_sparse_moe.experts.@.w2"},
};

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), pre_norm_names(), attention_names(), std::span(kExperts)});
  return rows;
}

}  // namespace
}  // namespace hf_minimax

std::vector<HfFamily> hf_minimax_families() {
  using namespace hf_minimax;

  return {{.family = "minimax_m2",
           .model_type = "minimax_m2",
           .architecture = "MiniMaxM2ForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
