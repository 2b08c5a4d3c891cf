// BERT as Hugging Face saves it.
#include "weft/pretrained/encoders/layer_fields.h"
#include "weft/pretrained/encoders/load_encoder.h"
#include "weft/pretrained/hf_family.h"

namespace weft {
namespace {

const EncoderNames kBertNames{
    .rows = {{"embedding.weight", "bert.embeddings.word_embeddings.weight"},
             {"position.weight", "bert.embeddings.position_embeddings.weight"},
             {"kind.weight", "bert.embeddings.token_type_embeddings.weight"},
             {"embedding_norm", "bert.embeddings.LayerNorm"},
             {"embedding_norm.weight", "bert.embeddings.LayerNorm.gamma"},
             {"embedding_norm.bias", "bert.embeddings.LayerNorm.beta"},
             {"layers.#.attention.query", "bert.encoder.layer.#.attention.self.query"},
             {"layers.#.attention.key", "bert.encoder.layer.#.attention.self.key"},
             {"layers.#.attention.value", "bert.encoder.layer.#.attention.self.value"},
             {"layers.#.attention.output", "bert.encoder.layer.#.attention.output.dense"},
             {"layers.#.attention_post_norm", "bert.encoder.layer.#.attention.output.LayerNorm"},
             {"layers.#.attention_post_norm.weight", "bert.encoder.layer.#.attention.output.LayerNorm.gamma"},
             {"layers.#.attention_post_norm.bias", "bert.encoder.layer.#.attention.output.LayerNorm.beta"},
             {"layers.#.mlp.up", "bert.encoder.layer.#.intermediate.dense"},
             {"layers.#.mlp.down", "bert.encoder.layer.#.output.dense"},
             {"layers.#.mlp_post_norm", "bert.encoder.layer.#.output.LayerNorm"},
             {"layers.#.mlp_post_norm.weight", "bert.encoder.layer.#.output.LayerNorm.gamma"},
             {"layers.#.mlp_post_norm.bias", "bert.encoder.layer.#.output.LayerNorm.beta"},
             {"transform", "cls.predictions.transform.dense"},
             {"transform_norm", "cls.predictions.transform.LayerNorm"},
             {"transform_norm.weight", "cls.predictions.transform.LayerNorm.gamma"},
             {"transform_norm.bias", "cls.predictions.transform.LayerNorm.beta"},
             {"head.bias", "cls.predictions.bias"}},
    .base = "bert.",
    // The head for masked tokens is the embedding; what follows the first token was for training only.
    .ignored = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "cls.seq_relationship.*",
                "bert.pooler.*", "bert.embeddings.position_ids"}};

BertConfig read_bert_config(const JsonView& json) {
  HfFields f(json);
  BertConfig c;
  c.encoder = read_encoder_shape(f, "gelu", 1e-12);
  c.encoder.block = BlockKind::of_sums;
  f.size("vocab_size", c.vocab);
  f.size("max_position_embeddings", c.context, 512);
  f.size("type_vocab_size", c.kinds, 2);
  f.only("is_decoder", false);
  if (f.has("position_embedding_type")) f.only("position_embedding_type", "absolute");
  return c;
}

}  // namespace

std::unique_ptr<Bert> open_bert(Context& context, const std::string& folder, const EncoderUse& use) {
  const JsonDocument json = read_config_json(folder);
  BertConfig config = read_bert_config(json.root());
  const auto stored = open_weights(folder);
  config.has_head = has_stored(*stored, kBertNames, "cls.predictions.transform.dense.weight");
  return load_encoder<Bert>(context, *stored, kBertNames, config,
                            {.layers = config.encoder.layers, .heads = config.encoder.heads}, use);
}

}  // namespace weft
