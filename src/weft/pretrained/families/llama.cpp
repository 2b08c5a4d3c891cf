// Llama as Hugging Face saves it, and the models whose configuration and tensors differ from it in a few names.
#include "weft/pretrained/families/families.h"

namespace weft {
namespace {

// What all of them have.
void common_fields(HfFields& f, ModelConfig& c) {
  f.size("vocab_size", c.vocab);
  f.size("max_position_embeddings", c.context, 2048);
  f.size("hidden_size", c.hidden);
  f.size("intermediate_size", c.ffn);
  f.size("num_hidden_layers", c.layers);
  f.size("num_attention_heads", c.heads);
  f.size("num_key_value_heads", c.kv_heads, c.heads);
  f.size("head_dim", c.head_dim, 0);
  f.number("rms_norm_eps", c.norm_eps, 1e-6);
  f.flag("tie_word_embeddings", c.tie_embeddings, false);
  f.choice<Activation>("hidden_act", c.activation, {{"silu", Activation::silu}, {"swish", Activation::silu}}, "silu");
  f.number("rope_theta", c.rope_theta, 10000);
  f.only_null("rope_scaling");
}

void llama_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  f.only("attention_bias", false);
  f.only("mlp_bias", false);
}

void mistral_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  f.only_null("sliding_window");
}

void qwen3_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  f.only("attention_bias", false);
  f.only("use_sliding_window", false);
}

void mixtral_fields(HfFields& f, ModelConfig& c) {
  common_fields(f, c);
  f.only_null("sliding_window");
  f.size("num_local_experts", c.experts, 8);
  f.size("num_experts_per_tok", c.experts_per_token, 2);
  f.number("router_aux_loss_coef", c.aux_loss, 0.001);
}

void qwen3_moe_fields(HfFields& f, ModelConfig& c) {
  qwen3_fields(f, c);
  f.size("num_experts", c.experts, 128);
  f.size("num_experts_per_tok", c.experts_per_token, 8);
  f.size("moe_intermediate_size", c.expert_ffn, 768);
  f.flag("norm_topk_prob", c.norm_topk, false);
  f.number("router_aux_loss_coef", c.aux_loss, 0.001);
  f.only("decoder_sparse_step", int64_t(1));
  if (f.is_reading() && f.has("mlp_only_layers") && f.from().at("mlp_only_layers").size() > 0)
    f.refuse("mlp_only_layers", "every layer must have experts");
}

constexpr NameRow kNames[] = {
    {"embedding", "model.embed_tokens"},
    {"layers.#.attention_norm", "model.layers.#.input_layernorm"},
    {"layers.#.attention.query", "model.layers.#.self_attn.q_proj"},
    {"layers.#.attention.key", "model.layers.#.self_attn.k_proj"},
    {"layers.#.attention.value", "model.layers.#.self_attn.v_proj"},
    {"layers.#.attention.output", "model.layers.#.self_attn.o_proj"},
    {"layers.#.attention.query_norm", "model.layers.#.self_attn.q_norm"},
    {"layers.#.attention.key_norm", "model.layers.#.self_attn.k_norm"},
    {"layers.#.mlp_norm", "model.layers.#.post_attention_layernorm"},
    {"layers.#.mlp.gate", "model.layers.#.mlp.gate_proj"},
    {"layers.#.mlp.up", "model.layers.#.mlp.up_proj"},
    {"layers.#.mlp.down", "model.layers.#.mlp.down_proj"},
    {"layers.#.moe.router", "model.layers.#.mlp.gate"},
    {"layers.#.moe.experts.gate", "model.layers.#.mlp.experts.@.gate_proj"},
    {"layers.#.moe.experts.up", "model.layers.#.mlp.experts.@.up_proj"},
    {"layers.#.moe.experts.down", "model.layers.#.mlp.experts.@.down_proj"},
    {"final_norm", "model.norm"},
    {"head", "lm_head"},
};

// Mixtral's names differ where its experts are.
constexpr NameRow kMixtralNames[] = {
    {"embedding", "model.embed_tokens"},
    {"layers.#.attention_norm", "model.layers.#.input_layernorm"},
    {"layers.#.attention.query", "model.layers.#.self_attn.q_proj"},
    {"layers.#.attention.key", "model.layers.#.self_attn.k_proj"},
    {"layers.#.attention.value", "model.layers.#.self_attn.v_proj"},
    {"layers.#.attention.output", "model.layers.#.self_attn.o_proj"},
    {"layers.#.mlp_norm", "model.layers.#.post_attention_layernorm"},
    {"layers.#.moe.router", "model.layers.#.block_sparse_moe.gate"},
    {"layers.#.moe.experts.gate", "model.layers.#.block_sparse_moe.experts.@.w1"},
    {"layers.#.moe.experts.up", "model.layers.#.block_sparse_moe.experts.@.w3"},
    {"layers.#.moe.experts.down", "model.layers.#.block_sparse_moe.experts.@.w2"},
    {"final_norm", "model.norm"},
    {"head", "lm_head"},
};

// Buffers that older versions of the library saved.
constexpr std::string_view kIgnored[] = {"model.layers.#.self_attn.rotary_emb.inv_freq"};

std::span<const NameRow> names(const ModelConfig&) { return kNames; }
std::span<const NameRow> mixtral_names(const ModelConfig&) { return kMixtralNames; }

constexpr HfFamily family(std::string_view name, std::string_view architecture, void (*fields)(HfFields&, ModelConfig&),
                          std::span<const NameRow> (*of)(const ModelConfig&) = names) {
  return {.family = name,
          .model_type = name,
          .architecture = architecture,
          .fields = fields,
          .names = of,
          .base = "model.",
          .ignored = kIgnored};
}

}  // namespace

std::span<const HfFamily> hf_llama_families() {
  static const HfFamily all[] = {
      family("llama", "LlamaForCausalLM", llama_fields),
      family("mistral", "MistralForCausalLM", mistral_fields),
      family("qwen3", "Qwen3ForCausalLM", qwen3_fields),
      family("mixtral", "MixtralForCausalLM", mixtral_fields, mixtral_names),
      family("qwen3_moe", "Qwen3MoeForCausalLM", qwen3_moe_fields),
  };
  return all;
}

}  // namespace weft
