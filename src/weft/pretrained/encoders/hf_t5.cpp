// T5 and Flan-T5 as Hugging Face saves them.
#include "weft/pretrained/encoders/load_encoder.h"
#include "weft/pretrained/hf_family.h"
#include "weft/pretrained/hf_fields.h"

namespace weft {
namespace {

const EncoderNames kT5Names{
    .rows = {{"embedding.weight", "shared.weight"},
             {"encoder.distances.weight", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
             {"decoder.distances.weight", "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
             {"encoder.layers.#.attention_norm", "encoder.block.#.layer.0.layer_norm"},
             {"encoder.layers.#.attention.query", "encoder.block.#.layer.0.SelfAttention.q"},
             {"encoder.layers.#.attention.key", "encoder.block.#.layer.0.SelfAttention.k"},
             {"encoder.layers.#.attention.value", "encoder.block.#.layer.0.SelfAttention.v"},
             {"encoder.layers.#.attention.output", "encoder.block.#.layer.0.SelfAttention.o"},
             {"encoder.layers.#.mlp_norm", "encoder.block.#.layer.1.layer_norm"},
             {"encoder.layers.#.mlp.gate", "encoder.block.#.layer.1.DenseReluDense.wi_0"},
             {"encoder.layers.#.mlp.up", "encoder.block.#.layer.1.DenseReluDense.wi_1"},
             {"encoder.layers.#.mlp.up", "encoder.block.#.layer.1.DenseReluDense.wi"},
             {"encoder.layers.#.mlp.down", "encoder.block.#.layer.1.DenseReluDense.wo"},
             {"encoder.final_norm", "encoder.final_layer_norm"},
             {"decoder.layers.#.attention_norm", "decoder.block.#.layer.0.layer_norm"},
             {"decoder.layers.#.attention.query", "decoder.block.#.layer.0.SelfAttention.q"},
             {"decoder.layers.#.attention.key", "decoder.block.#.layer.0.SelfAttention.k"},
             {"decoder.layers.#.attention.value", "decoder.block.#.layer.0.SelfAttention.v"},
             {"decoder.layers.#.attention.output", "decoder.block.#.layer.0.SelfAttention.o"},
             {"decoder.layers.#.memory_norm", "decoder.block.#.layer.1.layer_norm"},
             {"decoder.layers.#.memory_attention.query", "decoder.block.#.layer.1.EncDecAttention.q"},
             {"decoder.layers.#.memory_attention.key", "decoder.block.#.layer.1.EncDecAttention.k"},
             {"decoder.layers.#.memory_attention.value", "decoder.block.#.layer.1.EncDecAttention.v"},
             {"decoder.layers.#.memory_attention.output", "decoder.block.#.layer.1.EncDecAttention.o"},
             {"decoder.layers.#.mlp_norm", "decoder.block.#.layer.2.layer_norm"},
             {"decoder.layers.#.mlp.gate", "decoder.block.#.layer.2.DenseReluDense.wi_0"},
             {"decoder.layers.#.mlp.up", "decoder.block.#.layer.2.DenseReluDense.wi_1"},
             {"decoder.layers.#.mlp.up", "decoder.block.#.layer.2.DenseReluDense.wi"},
             {"decoder.layers.#.mlp.down", "decoder.block.#.layer.2.DenseReluDense.wo"},
             {"decoder.final_norm", "decoder.final_layer_norm"},
             {"head.weight", "lm_head.weight"}},
    .base = "transformer.",
    .ignored = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                // Older versions of the library saved a table that nothing reads.
                "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"}};

struct FeedForward {
  Activation activation;
  bool is_gated;
  bool operator==(const FeedForward&) const = default;
};

T5Config read_t5_config(const JsonView& json) {
  HfFields f(json);
  T5Config c;
  f.size("d_model", c.hidden);
  f.size("num_heads", c.heads);
  f.size("d_kv", c.head_dim);
  f.size("d_ff", c.ffn);
  f.size("vocab_size", c.vocab);
  f.size("num_layers", c.encoder_layers);
  f.size("num_decoder_layers", c.decoder_layers, c.encoder_layers);
  f.size("relative_attention_num_buckets", c.buckets, 32);
  f.size("relative_attention_max_distance", c.max_distance, 128);
  if (std::min({c.hidden, c.heads, c.head_dim, c.ffn, c.vocab, c.encoder_layers, c.decoder_layers}) < 1)
    f.refuse("d_model", "no width and no number of layers may be 0");
  f.number("layer_norm_epsilon", c.norm_eps, 1e-6);
  f.flag("tie_word_embeddings", c.tie_embeddings, true);
  const auto token = [&](const char* key, int64_t otherwise) {
    return int32_t(json.integer_or(key, otherwise, 0, c.vocab - 1));
  };
  c.first_token = token("decoder_start_token_id", json.integer_or("pad_token_id", 0));
  c.end_token = token("eos_token_id", 1);
  FeedForward mlp{};
  f.choice("feed_forward_proj", mlp,
           {{"relu", FeedForward{Activation::relu, false}},
            {"gelu", FeedForward{Activation::gelu, false}},
            {"gelu_new", FeedForward{Activation::gelu_tanh, false}},
            {"gated-gelu", FeedForward{Activation::gelu_tanh, true}},
            {"gated-silu", FeedForward{Activation::silu, true}},
            {"gated-relu", FeedForward{Activation::relu, true}}},
           "relu");
  c.activation = mlp.activation, c.is_gated = mlp.is_gated;
  return c;
}

}  // namespace

std::unique_ptr<T5> open_t5(Context& context, const std::string& folder, const EncoderUse& use) {
  const JsonDocument json = read_config_json(folder);
  const T5Config config = read_t5_config(json.root());
  EncoderNames names = kT5Names;
  if (config.tie_embeddings) names.ignored.emplace_back("lm_head.weight");
  return load_encoder<T5>(context, *open_weights(folder), names, config,
                          {.layers = config.encoder_layers + config.decoder_layers, .heads = config.heads}, use);
}

}  // namespace weft
