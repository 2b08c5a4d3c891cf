// BERT, NomicBERT and ModernBERT, as GGUF files have them: bert, which is RoBERTa and DistilBERT, too; nomic-bert;
// modern-bert.
#include <algorithm>

#include "weft/pretrained/encoders/bert_files.h"
#include "weft/pretrained/encoders/layer_fields.h"
#include "weft/pretrained/gguf_description.h"
#include "weft/pretrained/gguf_model.h"

namespace weft {
namespace {

constexpr const char* kScoresTensor = "cls.output.weight";

// Their positions begin with the first of a text. Files have projections of attention apart or together.
const EncoderNames kGgufBertNames{.rows = {{"embedding.weight", "token_embd.weight"},
                                           {"position.weight", "position_embd.weight"},
                                           {"kind.weight", "token_types.weight"},
                                           {"embedding_norm", "token_embd_norm"},
                                           {"layers.#.attention.query", "blk.#.attn_q"},
                                           {"layers.#.attention.query", "blk.#.attn_qkv", 0, 3},
                                           {"layers.#.attention.key", "blk.#.attn_k"},
                                           {"layers.#.attention.key", "blk.#.attn_qkv", 1, 3},
                                           {"layers.#.attention.value", "blk.#.attn_v"},
                                           {"layers.#.attention.value", "blk.#.attn_qkv", 2, 3},
                                           {"layers.#.attention.output", "blk.#.attn_output"},
                                           {"layers.#.attention_post_norm", "blk.#.attn_output_norm"},
                                           {"layers.#.mlp.gate", "blk.#.ffn_gate"},
                                           {"layers.#.mlp.up", "blk.#.ffn_up"},
                                           {"layers.#.mlp.down", "blk.#.ffn_down"},
                                           {"layers.#.mlp_post_norm", "blk.#.layer_output_norm"},
                                           {"pooler", "cls"},
                                           {"score", "cls.output"}},
                                  .base = ""};

const EncoderNames kGgufModernBertNames{.rows = {{"embedding.weight", "token_embd.weight"},
                                                 {"embedding_norm", "token_embd_norm"},
                                                 {"layers.#.attention_norm", "blk.#.attn_norm"},
                                                 {"layers.#.attention.query", "blk.#.attn_qkv", 0, 3},
                                                 {"layers.#.attention.key", "blk.#.attn_qkv", 1, 3},
                                                 {"layers.#.attention.value", "blk.#.attn_qkv", 2, 3},
                                                 {"layers.#.attention.output", "blk.#.attn_output"},
                                                 {"layers.#.mlp_norm", "blk.#.ffn_norm"},
                                                 {"layers.#.mlp.gate", "blk.#.ffn_up", 0, 2},
                                                 {"layers.#.mlp.up", "blk.#.ffn_up", 1, 2},
                                                 {"layers.#.mlp.down", "blk.#.ffn_down"},
                                                 {"final_norm", "output_norm"}},
                                        .base = "",
                                        .ignored = {"cls.*"}};

// 0: there is none.
int64_t rows_of(const GgufFile& file, const char* name) {
  const GgufTensor* const tensor = file.find_tensor(name);
  return tensor && tensor->dims.size() == 2 ? tensor->dims[1] : 0;
}

void read_gguf_bert_fields(GgufFields&, const GgufFile& file, BertConfig& c) {
  const int64_t rows = rows_of(file, "position_embd.weight");
  if (rows == 0) throw Error("{} has no tensor position_embd.weight, of positions and their vectors", file.path());
  c.encoder.positions = rows;
  c.encoder.block = BlockKind::of_sums;
}

void read_gguf_nomic_bert_fields(GgufFields& f, const GgufFile&, BertConfig& c) {
  EncoderShape& s = c.encoder;
  f.number("rope.freq_base", s.rope_theta, 1000);
  if (!(s.rope_theta >= 1)) f.refuse("rope.freq_base", "write a number of at least 1");
  s.activation = Activation::silu;
  s.is_gated = true, s.has_biases = false;
  s.block = BlockKind::of_sums;
}

void read_gguf_modern_bert_fields(GgufFields& f, const GgufFile&, BertConfig& c) {
  EncoderShape& s = c.encoder;
  f.number("rope.freq_base", s.rope_theta, 160000);
  f.number("rope.freq_base_swa", s.local_rope_theta, 10000);
  if (!(s.rope_theta >= 1) || !(s.local_rope_theta >= 1)) f.refuse("rope.freq_base", "write numbers of at least 1");
  int64_t window = 0, every = 0;
  f.size("attention.sliding_window", window, 128);
  f.size("attention.sliding_window_pattern", every, 3);
  if (window < 2 || window > kMostLocalWindow) f.refuse("attention.sliding_window", "write a number from 2 to 2^24");
  if (every < 1) f.refuse("attention.sliding_window_pattern", "write a number of at least 1");
  set_reach(s, window, [&](int64_t i) { return i % every == 0; });
  s.is_gated = true, s.has_biases = s.has_norm_biases = false;
  s.first_norm = false;
  s.block = BlockKind::pre;
}

struct GgufBertFamily {
  std::string_view architecture;
  const EncoderNames* names;
  void (*read)(GgufFields& f, const GgufFile& file, BertConfig& c);
};
const GgufBertFamily kGgufBerts[] = {{"bert", &kGgufBertNames, read_gguf_bert_fields},
                                     {"nomic-bert", &kGgufBertNames, read_gguf_nomic_bert_fields},
                                     {"modern-bert", &kGgufModernBertNames, read_gguf_modern_bert_fields}};

const GgufBertFamily* find_gguf_bert(const GgufFile& file) {
  const auto* const found =
      std::ranges::find(kGgufBerts, file.string_or("general.architecture", ""), &GgufBertFamily::architecture);
  return found == std::end(kGgufBerts) ? nullptr : found;
}

BertConfig read_gguf_config(const GgufBertFamily& family, const GgufFile& file) {
  const GgufDescription description = describe(file);
  GgufFields f(description);
  BertConfig c;
  EncoderShape& s = c.encoder;
  f.size("block_count", s.layers);
  f.size("embedding_length", s.hidden);
  f.size("attention.head_count", s.heads);
  f.size("feed_forward_length", s.ffn);
  f.size("context_length", s.positions);
  f.number("attention.layer_norm_epsilon", s.norm_eps);
  bool is_causal = false;
  f.flag("attention.causal", is_causal, false);
  if (is_causal) f.refuse("attention.causal", "an encoder's tokens see those behind them");
  std::string scaling;
  f.text("rope.scaling.type", scaling, "none");
  if (scaling != "none") f.refuse("rope.scaling.type", "positions of encoders are not scaled");
  c.vocab = description.vocab;
  c.kinds = rows_of(file, "token_types.weight");
  c.has_head = false;
  family.read(f, file, c);
  c.labels = rows_of(file, kScoresTensor);
  // Converters leave out what BERT's own head is made of, without which its scores are others, and say of no model
  // what comes behind the projection: DistilBERT, which has no kinds, has another activation there.
  if (c.labels > 0 && (c.kinds == 0 || family.names != &kGgufBertNames || !file.find_tensor("cls.weight")))
    throw Error(
        "{}: tensor {}: the file does not say all that its scores are made of: serve the folder that it was made of",
        file.path(), kScoresTensor);
  return c;
}

}  // namespace

bool is_bert(const GgufFile& file) { return find_gguf_bert(file) != nullptr; }

BertFiles open_gguf_bert(const std::string& path) {
  const GgufFile file(path);
  const GgufBertFamily* const family = find_gguf_bert(file);
  if (!family) throw Error("{}: its model is no BERT", path);
  return {read_gguf_config(*family, file), family->names, open_gguf_tensors(path)};
}

}  // namespace weft
