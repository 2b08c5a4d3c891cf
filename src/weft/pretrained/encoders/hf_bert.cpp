// BERT and what its kind became, RoBERTa, MPNet, DistilBERT, NomicBERT and ModernBERT, as Hugging Face saves them.
#include <algorithm>

#include "weft/pretrained/encoders/bert_files.h"
#include "weft/pretrained/encoders/layer_fields.h"
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

// As its makers call them, which the library writes, too.
const EncoderNames kNomicBertNames{
    .rows = {{"embedding.weight", "embeddings.word_embeddings.weight"},
             {"kind.weight", "embeddings.token_type_embeddings.weight"},
             {"embedding_norm", "emb_ln"},
             {"layers.#.attention.query", "encoder.layers.#.attn.Wqkv", 0, 3},
             {"layers.#.attention.key", "encoder.layers.#.attn.Wqkv", 1, 3},
             {"layers.#.attention.value", "encoder.layers.#.attn.Wqkv", 2, 3},
             {"layers.#.attention.output", "encoder.layers.#.attn.out_proj"},
             {"layers.#.attention_post_norm", "encoder.layers.#.norm1"},
             {"layers.#.mlp.gate", "encoder.layers.#.mlp.fc12"},
             {"layers.#.mlp.up", "encoder.layers.#.mlp.fc11"},
             {"layers.#.mlp.down", "encoder.layers.#.mlp.fc2"},
             {"layers.#.mlp_post_norm", "encoder.layers.#.norm2"},
             {"transform", "cls.predictions.transform.dense"},
             {"transform_norm", "cls.predictions.transform.layer_norm"},
             {"head.bias", "cls.predictions.bias"},
             {"pooler", "pooler.dense"},
             {"score", "classifier"}},
    .base = "nomic_bert.",
    .ignored = {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias", "pooler.*"}};

const EncoderNames kModernBertNames{.rows = {{"embedding.weight", "embeddings.tok_embeddings.weight"},
                                             {"embedding_norm", "embeddings.norm"},
                                             {"layers.#.attention_norm", "layers.#.attn_norm"},
                                             {"layers.#.attention.query", "layers.#.attn.Wqkv", 0, 3},
                                             {"layers.#.attention.key", "layers.#.attn.Wqkv", 1, 3},
                                             {"layers.#.attention.value", "layers.#.attn.Wqkv", 2, 3},
                                             {"layers.#.attention.output", "layers.#.attn.Wo"},
                                             {"layers.#.mlp_norm", "layers.#.mlp_norm"},
                                             {"layers.#.mlp.gate", "layers.#.mlp.Wi", 0, 2},
                                             {"layers.#.mlp.up", "layers.#.mlp.Wi", 1, 2},
                                             {"layers.#.mlp.down", "layers.#.mlp.Wo"},
                                             {"final_norm", "final_norm"},
                                             {"transform", "head.dense"},
                                             {"transform_norm", "head.norm"},
                                             {"head.bias", "decoder.bias"},
                                             {"score", "classifier"}},
                                    .base = "model.",
                                    .ignored = {"decoder.weight", "head.*"}};

void read_bert_fields(HfFields& f, BertConfig& c) {
  c.encoder = read_encoder_shape(f, "gelu", 1e-12);
  f.size("max_position_embeddings", c.encoder.positions, 512);
  c.transform = c.encoder.activation;
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
  f.size("max_position_embeddings", s.positions, 512);
  c.transform = s.activation;
  c.kinds = 0, c.pooler = Activation::relu;
}

double plain_theta(const HfFields& f, const ModelConfig& angles) {
  if (angles.rope_scaling.kind != RopeScaling::Kind::none)
    f.refuse("rope_parameters", "positions of encoders are not scaled");
  return angles.rope_theta;
}

// With the names of GPT-2, as its makers wrote it.
void read_nomic_bert_makers_fields(HfFields& f, EncoderShape& s) {
  f.size("n_layer", s.layers);
  f.size("n_embd", s.hidden);
  f.size("n_head", s.heads);
  f.size("n_inner", s.ffn);
  f.only("activation_function", "swiglu");
  s.activation = Activation::silu;
  f.number("layer_norm_epsilon", s.norm_eps, 1e-12);
  int64_t trained = 0;
  f.size("n_positions", s.positions);
  f.size("max_trained_positions", trained, s.positions);
  s.positions = std::min(s.positions, trained);
  f.number("rotary_emb_base", s.rope_theta, 1000);
  double turned = 1;
  f.number("rotary_emb_fraction", turned, 1);
  if (turned != 1) f.refuse("rotary_emb_fraction", "all of a head must turn");
  for (const char* key : {"qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "prenorm", "use_rms_norm", "causal",
                          "rotary_emb_interleaved"})
    f.only(key, false);
  f.only("num_experts", int64_t(0));
  for (const char* key : {"rotary_scaling_factor", "rotary_emb_scale_base"}) f.only_null(key);
}

void read_nomic_bert_fields(HfFields& f, BertConfig& c) {
  EncoderShape& s = c.encoder;
  if (f.has("n_embd")) {
    read_nomic_bert_makers_fields(f, s);
  } else {
    ModelConfig angles;
    s = read_encoder_shape(f, "silu", 1e-12);
    f.size("max_position_embeddings", s.positions, 2048);
    if (f.has("head_dim")) f.only("head_dim", s.heads > 0 ? s.hidden / s.heads : 0);
    rope_fields(f, angles, 1000);
    s.rope_theta = plain_theta(f, angles);
  }
  if (!(s.rope_theta >= 1)) f.refuse("rotary_emb_base", "write a number of at least 1");
  f.size("type_vocab_size", c.kinds, 2);
  c.transform = s.activation;
  s.is_gated = true, s.has_biases = false;
}

// Which layers are global, and what turns in them and in the others.
void read_layer_kinds(HfFields& f, EncoderShape& s) {
  constexpr const char* kTypes = "layer_types";
  constexpr double kTheta = 160000, kLocalTheta = 10000;
  ModelConfig angles;
  angles.layers = s.layers, angles.rope_theta = kTheta, angles.local_rope_theta = kLocalTheta;
  if (f.has("rope_scaling")) f.refuse("rope_scaling", "positions of encoders are not scaled");
  if (!rope_fields_by_layer(f, angles, kTheta, kLocalTheta)) {
    if (f.has("rope_parameters")) f.refuse("rope_parameters", "it must tell both kinds of layers");
    f.number("global_rope_theta", angles.rope_theta, kTheta);
    f.number("local_rope_theta", angles.local_rope_theta, kLocalTheta);
  }
  s.rope_theta = plain_theta(f, angles), s.local_rope_theta = angles.local_rope_theta;
  if (!(s.rope_theta >= 1) || !(s.local_rope_theta >= 1))
    f.refuse(f.has("rope_parameters") ? "rope_parameters" : "global_rope_theta", "write numbers of at least 1");
  int64_t window = 0, every = 0;
  f.size("local_attention", window, 128);
  f.size("global_attn_every_n_layers", every, 3);
  if (window < 2 || window > kMostLocalWindow) f.refuse("local_attention", "write a number from 2 to 2^24");
  if (every < 1) f.refuse("global_attn_every_n_layers", "write a number of at least 1");
  std::vector<bool> is_local;
  if (f.has(kTypes)) is_local = layers_that_are(f, angles, kTypes, "sliding_attention", "full_attention");
  set_reach(s, window, [&](int64_t i) { return is_local.empty() ? i % every == 0 : !is_local[size_t(i)]; });
}

void read_modernbert_fields(HfFields& f, BertConfig& c) {
  EncoderShape& s = c.encoder;
  f.size("num_hidden_layers", s.layers, 22);
  f.size("hidden_size", s.hidden, 768);
  f.size("num_attention_heads", s.heads, 12);
  f.size("intermediate_size", s.ffn, 1152);
  activation_field(f, "hidden_activation", s.activation, "gelu");
  activation_field(f, "classifier_activation", c.transform, "gelu");
  f.number("norm_eps", s.norm_eps, 1e-5);
  f.size("max_position_embeddings", s.positions, 8192);
  for (const char* key : {"attention_bias", "mlp_bias", "norm_bias", "classifier_bias"}) f.only(key, false);
  for (const char* key : {"decoder_bias", "tie_word_embeddings"}) f.only(key, true);
  f.choice("classifier_pooling", c.scores_mean, {{"cls", false}, {"mean", true}}, "cls");
  s.is_gated = true, s.has_biases = s.has_norm_biases = c.has_transform_bias = false;
  s.first_norm = false;
  read_layer_kinds(f, s);
  c.kinds = 0, c.has_pooler = false;
}

struct BertFamily {
  std::string_view model_type;
  const EncoderNames* names;
  void (*read)(HfFields& f, BertConfig& c);
  std::string_view in_head;  // of masked tokens, where the model has one
  BlockKind block = BlockKind::of_sums;
};
const BertFamily kFamilies[] = {
    {"bert", &kBertNames, read_bert_fields, "cls.predictions.transform.dense.weight"},
    {"roberta", &kRobertaNames, read_roberta_fields, "lm_head.dense.weight"},
    {"xlm-roberta", &kRobertaNames, read_roberta_fields, "lm_head.dense.weight"},
    {"camembert", &kRobertaNames, read_roberta_fields, "lm_head.dense.weight"},
    {"mpnet", &kMpnetNames, read_mpnet_fields, "lm_head.dense.weight"},
    {"distilbert", &kDistilBertNames, read_distilbert_fields, "vocab_transform.weight"},
    {"nomic_bert", &kNomicBertNames, read_nomic_bert_fields, "cls.predictions.transform.dense.weight"},
    {"modernbert", &kModernBertNames, read_modernbert_fields, "decoder.bias", BlockKind::pre}};

const BertFamily* find_family(const JsonView& config) {
  const auto* const found = std::ranges::find(kFamilies, config.string_or("model_type", ""), &BertFamily::model_type);
  return found == std::end(kFamilies) ? nullptr : found;
}

BertConfig read_config(const BertFamily& family, const JsonView& json) {
  HfFields f(json);
  BertConfig c;
  family.read(f, c);
  c.encoder.block = family.block;
  f.size("vocab_size", c.vocab);
  if (scores_texts(json)) c.labels = num_labels_of(json);
  return c;
}

}  // namespace

bool is_bert(const JsonView& config) { return find_family(config) != nullptr; }

BertFiles open_hf_bert(const std::string& folder) {
  const JsonDocument json = read_config_json(folder);
  const BertFamily* const family = find_family(json.root());
  if (!family) throw Error("{}: its model is no BERT", json.root().source());
  BertFiles files{read_config(*family, json.root()), family->names, open_weights(folder)};
  files.config.has_head = has_stored(*files.stored, *family->names, family->in_head);
  return files;
}

}  // namespace weft
