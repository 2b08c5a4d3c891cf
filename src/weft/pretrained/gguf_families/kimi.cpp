// Kimi Linear: latent attention that turns nothing in layers that have a key head, states of the delta rule in the
// others, of as many heads.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_kimi {
namespace {

void shape_fields(GgufFields& f, ModelConfig& c) {
  gguf_shape_fields(f, c);
  f.number("attention.layer_norm_rms_epsilon", c.norm_eps);
  gguf_latent_fields(f, c);
}

void fields(GgufFields& f, ModelConfig& c) {
  gguf_attending_layers_fields(f, c, shape_fields);
  f.size("ssm.conv_kernel", c.state_conv);
  f.size("kda.head_dim", c.state_key_dim);
  c.state_heads = c.state_key_heads = c.heads, c.state_value_dim = c.state_key_dim;
  gguf_deepseek_expert_fields(f, c, true);
  gguf_router_field(f, c, RouterGate::sigmoid);
}

constexpr NameRow kState[] = {
    {"layers.#.state.query", "blk.#.attn_q"},
    {"layers.#.state.key", "blk.#.attn_k"},
    {"layers.#.state.value", "blk.#.attn_v"},
    {"layers.#.state.query_conv", "blk.#.ssm_conv1d_q", {.is_convolution = true}},
    {"layers.#.state.key_conv", "blk.#.ssm_conv1d_k", {.is_convolution = true}},
    {"layers.#.state.value_conv", "blk.#.ssm_conv1d_v", {.is_convolution = true}},
    {"layers.#.state.gate_down", "blk.#.ssm_g_a"},
    {"layers.#.state.gate", "blk.#.ssm_g_b"},
    {"layers.#.state.decay_down", "blk.#.ssm_f_a"},
    {"layers.#.state.decay", "blk.#.ssm_f_b"},
    {"layers.#.state.beta", "blk.#.ssm_beta"},
    {"layers.#.state.rate", "blk.#.ssm_a", {.as = VectorAs::column, .values = ValueMap::minus_exp}},
    {"layers.#.state.shift", "blk.#.ssm_dt.bias"},
    {"layers.#.state.norm", "blk.#.ssm_norm"},
    {"layers.#.state.output", "blk.#.attn_output"},
};

std::span<const NameRow> names(const ModelConfig& c) {
  const auto rows_with = [&](int64_t query_rank) {
    return joined({kState, gguf_latent_names({.query_rank = query_rank}), gguf_halved_names(c)});
  };
  static const std::vector<NameRow> rows = rows_with(1), direct = rows_with(0);
  return c.query_rank > 0 ? rows : direct;
}

}  // namespace
}  // namespace gguf_kimi

std::vector<GgufFamily> gguf_kimi_families() {
  return {{"kimi-linear", "kimi_linear", gguf_kimi::fields, gguf_kimi::names}};
}

}  // namespace weft
