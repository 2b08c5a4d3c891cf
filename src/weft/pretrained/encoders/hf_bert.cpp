// BERT and what its kind became, RoBERTa, MPNet and DistilBERT, as Hugging Face saves them.
#include <algorithm>

#include "weft/pretrained/encoders/layer_fields.h"
#include "weft/pretrained/encoders/load_encoder.h"
#include "weft/pretrained/hf_family.h"
#include "weft/pretrained/score_rule.h"

namespace weft {
namespace {

const std::vector<EncoderName> kTrunk{
    {"embedding.weight", "embeddings.word_embeddings.weight"},
    {"position.weight", "embeddings.position_embeddings.weight"},
    {"kind.weight", "embeddings.token_type_embeddings.weight"},
    {"embedding_norm", "embeddings.LayerNorm"},
    {"embedding_norm.weight", "embeddings.LayerNorm.gamma"},
    {"embedding_norm.bias", "embeddings.LayerNorm.beta"},
    {"layers.#.attention.query", "encoder.layer.#.attention.self.query"},
    {"layers.#.attention.key", "encoder.layer.#.attention.self.key"},
    {"layers.#.attention.value", "encoder.layer.#.attention.self.value"},
    {"layers.#.attention.output", "encoder.layer.#.attention.output.dense"},
    {"layers.#.attention_post_norm", "encoder.layer.#.attention.output.LayerNorm"},
    {"layers.#.attention_post_norm.weight", "encoder.layer.#.attention.output.LayerNorm.gamma"},
    {"layers.#.attention_post_norm.bias", "encoder.layer.#.attention.output.LayerNorm.beta"},
    {"layers.#.mlp.up", "encoder.layer.#.intermediate.dense"},
    {"layers.#.mlp.down", "encoder.layer.#.output.dense"},
    {"layers.#.mlp_post_norm", "encoder.layer.#.output.LayerNorm"},
    {"layers.#.mlp_post_norm.weight", "encoder.layer.#.output.LayerNorm.gamma"},
    {"layers.#.mlp_post_norm.bias", "encoder.layer.#.output.LayerNorm.beta"}};

std::vector<EncoderName> with_trunk(std::vector<EncoderName> heads) {
  heads.insert(heads.begin(), kTrunk.begin(), kTrunk.end());
  return heads;
}

// The head for masked tokens is the embedding, again; what BERT's pooler was trained for, where no scores read it, is
// nobody's.
const EncoderNames kBertNames{
    .rows = with_trunk({{"transform", "cls.predictions.transform.dense"},
                        {"transform_norm", "cls.predictions.transform.LayerNorm"},
                        {"transform_norm.weight", "cls.predictions.transform.LayerNorm.gamma"},
                        {"transform_norm.bias", "cls.predictions.transform.LayerNorm.beta"},
                        {"head.bias", "cls.predictions.bias"},
                        {"pooler", "pooler.dense"},
                        {"score", "classifier"}}),
    .base = "bert.",
    .ignored = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "cls.seq_relationship.*",
                "pooler.*", "embeddings.position_ids"}};

const EncoderNames kRobertaNames{
    .rows = with_trunk({{"transform", "lm_head.dense"},
                        {"transform_norm", "lm_head.layer_norm"},
                        {"head.bias", "lm_head.bias"},
                        {"pooler", "classifier.dense"},
                        {"score", "classifier.out_proj"}}),
    .base = "roberta.",
    .ignored = {"lm_head.decoder.weight", "lm_head.decoder.bias", "pooler.*", "embeddings.position_ids"}};

const EncoderNames kMpnetNames{
    .rows = {{"embedding.weight", "embeddings.word_embeddings.weight"},
             {"position.weight", "embeddings.position_embeddings.weight"},
             {"embedding_norm", "embeddings.LayerNorm"},
             {"distances.weight", "encoder.relative_attention_bias.weight"},
             {"layers.#.attention.query", "encoder.layer.#.attention.attn.q"},
             {"layers.#.attention.key", "encoder.layer.#.attention.attn.k"},
             {"layers.#.attention.value", "encoder.layer.#.attention.attn.v"},
             {"layers.#.attention.output", "encoder.layer.#.attention.attn.o"},
             {"layers.#.attention_post_norm", "encoder.layer.#.attention.LayerNorm"},
             {"layers.#.mlp.up", "encoder.layer.#.intermediate.dense"},
             {"layers.#.mlp.down", "encoder.layer.#.output.dense"},
             {"layers.#.mlp_post_norm", "encoder.layer.#.output.LayerNorm"},
             {"transform", "lm_head.dense"},
             {"transform_norm", "lm_head.layer_norm"},
             {"head.bias", "lm_head.bias"},
             {"pooler", "classifier.dense"},
             {"score", "classifier.out_proj"}},
    .base = "mpnet.",
    .ignored = {"lm_head.decoder.weight", "lm_head.decoder.bias", "pooler.*", "embeddings.position_ids"}};

const EncoderNames kDistilBertNames{.rows = {{"embedding.weight", "embeddings.word_embeddings.weight"},
                                             {"position.weight", "embeddings.position_embeddings.weight"},
                                             {"embedding_norm", "embeddings.LayerNorm"},
                                             {"layers.#.attention.query", "transformer.layer.#.attention.q_lin"},
                                             {"layers.#.attention.key", "transformer.layer.#.attention.k_lin"},
                                             {"layers.#.attention.value", "transformer.layer.#.attention.v_lin"},
                                             {"layers.#.attention.output", "transformer.layer.#.attention.out_lin"},
                                             {"layers.#.attention_post_norm", "transformer.layer.#.sa_layer_norm"},
                                             {"layers.#.mlp.up", "transformer.layer.#.ffn.lin1"},
                                             {"layers.#.mlp.down", "transformer.layer.#.ffn.lin2"},
                                             {"layers.#.mlp_post_norm", "transformer.layer.#.output_layer_norm"},
                                             {"transform", "vocab_transform"},
                                             {"transform_norm", "vocab_layer_norm"},
                                             {"head.bias", "vocab_projector.bias"},
                                             {"pooler", "pre_classifier"},
                                             {"score", "classifier"}},
                                    .base = "distilbert.",
                                    .ignored = {"vocab_projector.weight", "embeddings.position_ids"}};

void read_bert_fields(HfFields& f, BertConfig& c) {
  c.encoder = read_encoder_shape(f, "gelu", 1e-12);
  f.size("max_position_embeddings", c.positions, 512);
  f.size("type_vocab_size", c.kinds, 2);
  f.only("is_decoder", false);
  if (f.has("position_embedding_type")) f.only("position_embedding_type", "absolute");
}

// Positions begin behind that of what fills up a batch.
void read_roberta_fields(HfFields& f, BertConfig& c) {
  read_bert_fields(f, c);
  int64_t padding = 0;
  f.size("pad_token_id", padding, 1);
  c.first_position = padding + 1;
  if (c.context() < 1) f.refuse("max_position_embeddings", "no position is left behind that of pad_token_id");
}

void read_mpnet_fields(HfFields& f, BertConfig& c) {
  read_roberta_fields(f, c);
  c.kinds = 0;
  c.distances = {};
  if (f.has("relative_attention_num_buckets"))  // the library has as many, whatever it says
    f.only("relative_attention_num_buckets", c.distances.buckets);
}

void read_distilbert_fields(HfFields& f, BertConfig& c) {
  EncoderShape& s = c.encoder;
  f.size("n_layers", s.layers, 6);
  f.size("dim", s.hidden, 768);
  f.size("n_heads", s.heads, 12);
  f.size("hidden_dim", s.ffn, 3072);
  activation_field(f, "activation", s.activation, "gelu");
  s.norm_eps = 1e-12f;
  f.size("max_position_embeddings", c.positions, 512);
  c.kinds = 0, c.pooler = Activation::relu;
}

struct BertFamily {
  std::string_view model_type;
  const EncoderNames* names;
  void (*read)(HfFields& f, BertConfig& c);
  std::string_view in_head;  // of masked tokens, where the model has one
};
const BertFamily kFamilies[] = {{"bert", &kBertNames, read_bert_fields, "cls.predictions.transform.dense.weight"},
                                {"roberta", &kRobertaNames, read_roberta_fields, "lm_head.dense.weight"},
                                {"xlm-roberta", &kRobertaNames, read_roberta_fields, "lm_head.dense.weight"},
                                {"camembert", &kRobertaNames, read_roberta_fields, "lm_head.dense.weight"},
                                {"mpnet", &kMpnetNames, read_mpnet_fields, "lm_head.dense.weight"},
                                {"distilbert", &kDistilBertNames, read_distilbert_fields, "vocab_transform.weight"}};

const BertFamily* find_family(const JsonView& config) {
  const auto* const found = std::ranges::find(kFamilies, config.string_or("model_type", ""), &BertFamily::model_type);
  return found == std::end(kFamilies) ? nullptr : found;
}

BertConfig read_config(const BertFamily& family, const JsonView& json) {
  HfFields f(json);
  BertConfig c;
  family.read(f, c);
  c.encoder.block = BlockKind::of_sums;
  f.size("vocab_size", c.vocab);
  if (scores_texts(json)) c.labels = num_labels_of(json);
  return c;
}

}  // namespace

bool is_bert(const JsonView& config) { return find_family(config) != nullptr; }

BertConfig read_bert_config(const JsonView& config) {
  const BertFamily* const family = find_family(config);
  if (!family) throw Error("{}: its model is no BERT", config.source());
  return read_config(*family, config);
}

std::unique_ptr<Bert> open_bert(Context& context, const std::string& folder, const EncoderUse& use) {
  const JsonDocument json = read_config_json(folder);
  BertConfig config = read_bert_config(json.root());
  const BertFamily& family = *find_family(json.root());
  const auto stored = open_weights(folder);
  config.has_head = has_stored(*stored, *family.names, family.in_head);
  return load_encoder<Bert>(context, *stored, *family.names, config,
                            {.layers = config.encoder.layers, .heads = config.encoder.heads}, use);
}

}  // namespace weft
