// Encoders in GGUF files give what the folders give that they are made of.
#include <gtest/gtest.h>

#include "pretrained/golden_models.h"
#include "support/message_of.h"
#include "support/rank.h"
#include "weft/formats/gguf_writer.h"
#include "weft/pretrained/encoders/text_encoder_source.h"
#include "weft/pretrained/model_source.h"

namespace weft {
namespace {

using Renamed = std::pair<std::string_view, std::string_view>;  // without ".weight" and ".bias"; '#': a layer

const std::vector<Renamed> kBertTensors = {{"embeddings.word_embeddings", "token_embd"},
                                           {"embeddings.position_embeddings", "position_embd"},
                                           {"embeddings.token_type_embeddings", "token_types"},
                                           {"embeddings.LayerNorm", "token_embd_norm"},
                                           {"encoder.layer.#.attention.self.query", "blk.#.attn_q"},
                                           {"encoder.layer.#.attention.self.key", "blk.#.attn_k"},
                                           {"encoder.layer.#.attention.self.value", "blk.#.attn_v"},
                                           {"encoder.layer.#.attention.output.dense", "blk.#.attn_output"},
                                           {"encoder.layer.#.attention.output.LayerNorm", "blk.#.attn_output_norm"},
                                           {"encoder.layer.#.intermediate.dense", "blk.#.ffn_up"},
                                           {"encoder.layer.#.output.dense", "blk.#.ffn_down"},
                                           {"encoder.layer.#.output.LayerNorm", "blk.#.layer_output_norm"},
                                           {"classifier.dense", "cls"},
                                           {"classifier.out_proj", "cls.output"},
                                           {"classifier", "cls.output"}};
const std::vector<Renamed> kNomicTensors = {{"embeddings.word_embeddings", "token_embd"},
                                            {"embeddings.token_type_embeddings", "token_types"},
                                            {"emb_ln", "token_embd_norm"},
                                            {"encoder.layers.#.attn.Wqkv", "blk.#.attn_qkv"},
                                            {"encoder.layers.#.attn.out_proj", "blk.#.attn_output"},
                                            {"encoder.layers.#.norm1", "blk.#.attn_output_norm"},
                                            {"encoder.layers.#.mlp.fc11", "blk.#.ffn_up"},
                                            {"encoder.layers.#.mlp.fc12", "blk.#.ffn_gate"},
                                            {"encoder.layers.#.mlp.fc2", "blk.#.ffn_down"},
                                            {"encoder.layers.#.norm2", "blk.#.layer_output_norm"}};
const std::vector<Renamed> kModernTensors = {{"embeddings.tok_embeddings", "token_embd"},
                                             {"embeddings.norm", "token_embd_norm"},
                                             {"layers.#.attn_norm", "blk.#.attn_norm"},
                                             {"layers.#.attn.Wqkv", "blk.#.attn_qkv"},
                                             {"layers.#.attn.Wo", "blk.#.attn_output"},
                                             {"layers.#.mlp_norm", "blk.#.ffn_norm"},
                                             {"layers.#.mlp.Wi", "blk.#.ffn_up"},
                                             {"layers.#.mlp.Wo", "blk.#.ffn_down"},
                                             {"final_norm", "output_norm"}};

struct GgufEncoder {
  const char *golden, *base, *architecture;
  const std::vector<Renamed>& tensors;
  uint32_t layers = 2;
  float norm_eps = 1e-12f;
  int64_t dropped_positions = 0;  // that are no text's
};

// Empty: it is not in the file.
std::string gguf_name(const GgufEncoder& e, std::string_view stored) {
  if (stored.starts_with(e.base)) stored.remove_prefix(std::string_view(e.base).size());
  const size_t dot = stored.rfind('.');
  for (const auto& [from, to] : e.tensors)
    for (const char layer : {'0', '1', '2', '3'}) {
      std::string stem(from), name(to);
      std::ranges::replace(stem, '#', layer), std::ranges::replace(name, '#', layer);
      if (stem == stored.substr(0, dot)) return name + std::string(stored.substr(dot));
    }
  return {};
}

GgufMetadata metadata_of(const GgufEncoder& e) {
  const std::string prefix = std::string(e.architecture) + ".";
  GgufMetadata m;
  m.set_string("general.architecture", e.architecture);
  m.set<uint32_t>(prefix + "block_count", e.layers);
  m.set<uint32_t>(prefix + "context_length", 16);
  m.set<uint32_t>(prefix + "embedding_length", 16);
  m.set<uint32_t>(prefix + "feed_forward_length", 20);
  m.set<uint32_t>(prefix + "attention.head_count", 4);
  m.set<float>(prefix + "attention.layer_norm_epsilon", e.norm_eps);
  return m;
}

void write_encoder(const GgufEncoder& e, const GoldenModel& golden, const GgufMetadata& metadata,
                   const std::string& path) {
  const auto stored = open_safetensors(golden.path());
  std::vector<GgufInfo> infos;
  std::vector<std::vector<float>> values;
  for (const StoredInfo& info : stored->all()) {
    const std::string name = gguf_name(e, info.name);
    if (name.empty()) continue;
    std::vector<int64_t> dims = info.dims;
    const int64_t dropped = name == "position_embd.weight" ? e.dropped_positions : 0;
    dims[0] -= dropped;
    infos.push_back({name, GgmlType::f32, Shape(std::span<const int64_t>(dims))});
    values.emplace_back(size_t(infos.back().shape.numel()));
    stored->read(info, dropped * info.dims.back(), 1, values.back());
  }
  GgufWriter writer(FileSystem::real(), path, infos, metadata);
  for (const auto& one : values) writer.write(std::as_bytes(std::span(one)));
  writer.finish();
}

double worst_of(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  double worst = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    worst = std::max(worst, std::abs(a.data<double>()[i] - b.data<double>()[i]));
  return worst;
}

const GgufEncoder kBert{"bert", "bert.", "bert", kBertTensors};
const GgufEncoder kScorer{"roberta_scores", "roberta.", "bert", kBertTensors, 2, 1e-5f, 2};
// As of a DistilBERT, which has another activation before its scores.
const std::vector<Renamed> kTensorsWithoutKinds = [] {
  std::vector<Renamed> tensors = kBertTensors;
  std::erase_if(tensors, [](const Renamed& one) { return one.second == "token_types"; });
  return tensors;
}();
const GgufEncoder kScorerWithoutKinds{"roberta_scores", "roberta.", "bert", kTensorsWithoutKinds, 2, 1e-5f, 2};
const GgufEncoder kNomic{"nomic_bert", "nomic_bert.", "nomic-bert", kNomicTensors};
const GgufEncoder kModern{"modernbert", "model.", "modern-bert", kModernTensors, 4, 1e-5f};

class GgufEncoderTest : public testing::TestWithParam<GgufEncoder> {};
INSTANTIATE_TEST_SUITE_P(Kinds, GgufEncoderTest, testing::Values(kBert, kScorer, kNomic, kModern),
                         [](const auto& test) { return std::string(test.param.golden); });

TEST_P(GgufEncoderTest, ReadsAText) {
  const GgufEncoder& e = GetParam();
  const GoldenModel golden(e.golden, "golden_encoders");
  const TemporaryFolder folder;
  GgufMetadata metadata = metadata_of(e);
  if (e.architecture == std::string_view("nomic-bert")) metadata.set<float>("nomic-bert.rope.freq_base", 30);
  if (e.architecture == std::string_view("modern-bert")) {
    metadata.set<float>("modern-bert.rope.freq_base", 100);
    metadata.set<float>("modern-bert.rope.freq_base_swa", 20);
    metadata.set<uint32_t>("modern-bert.attention.sliding_window", 4);
  }
  const std::string path = folder / "m.gguf";
  write_encoder(e, golden, metadata, path);
  EXPECT_EQ(encoder_kind(path), EncoderKind::bert);
  TestRank rank(reference_kernels());
  const auto model = open_bert(rank.context, path, {DType::f64});
  const auto origin = open_bert(rank.context, golden.path(), {DType::f64});
  EXPECT_EQ(model->config().context(), 16);
  TextRows text = model->no_texts(), of_origin = origin->no_texts();
  for (TextRows* rows : {&text, &of_origin}) rows->add(golden.ids(), 4);
  const Var hidden = model->hidden(rank.context, text), wanted = origin->hidden(rank.context, of_origin);
  EXPECT_LT(worst_of(hidden.value, wanted.value), 1e-6);  // the files' numbers are in fp32
  if (model->config().labels == 0) return;
  EXPECT_LT(worst_of(model->scores(hidden, text), origin->scores(wanted, of_origin)), 1e-6);
}

// With a WordPiece tokenizer of the 13 tokens that the model knows.
void add_word_pieces(GgufMetadata& m) {
  const std::vector<std::string> tokens{"[PAD]",     "[UNK]", "[CLS]", "[SEP]",   "[MASK]",  "\u2581one", "\u2581two",
                                        "\u2581fox", "es",    "ing",   "\u2581.", "\u2581a", "\u2581b"};
  const std::vector<int32_t> types{3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1};
  m.set_string("tokenizer.ggml.model", "bert");
  m.set_strings("tokenizer.ggml.tokens", tokens);
  m.set_array<int32_t>("tokenizer.ggml.token_type", types);
  m.set<uint32_t>("tokenizer.ggml.unknown_token_id", 1);
  m.set<uint32_t>("tokenizer.ggml.cls_token_id", 2);
  m.set<uint32_t>("tokenizer.ggml.seperator_token_id", 3);
}

TEST(GgufEncodersTest, SayHowTextsAreRead) {
  const GoldenModel golden("bert", "golden_encoders");
  const TemporaryFolder folder;
  GgufMetadata metadata = metadata_of(kBert);
  metadata.set<uint32_t>("bert.pooling_type", 2);
  add_word_pieces(metadata);
  write_encoder(kBert, golden, metadata, folder / "m.gguf");
  const TextEncoderSource source(folder / "m.gguf");
  EXPECT_EQ(source.context(), 16);
  EXPECT_EQ(source.config().kinds, 2);
  EXPECT_EQ(source.embedding_rule(), (EmbeddingRule{.pooling = Pooling::first}));
  EXPECT_TRUE(source.score_rule().labels.empty());
  EXPECT_EQ(source.dtype(), DType::f32);
  const auto tokenizer = source.tokenizer();
  EXPECT_EQ(tokenizer->encode("One foxes", {.add_special = true}), (std::vector<int32_t>{2, 5, 7, 8, 3}));
  const std::optional<PairSurroundings> around = source.around_pair(*tokenizer);
  ASSERT_TRUE(around);
  EXPECT_EQ(around->before, std::vector<int32_t>{2});
  EXPECT_EQ(around->between, std::vector<int32_t>{3});
  EXPECT_EQ(around->after, std::vector<int32_t>{3});
  EXPECT_TRUE(around->tells_apart);
}

TEST(GgufEncodersTest, AreNoDecoders) {
  const TemporaryFolder folder;
  write_encoder(kNomic, GoldenModel("nomic_bert", "golden_encoders"), metadata_of(kNomic), folder / "m.gguf");
  for (const bool opens : {true, false}) {
    const std::string said = message_of<UsageError>(
        [&] { opens ? void(open_model(folder / "m.gguf")) : void(model_config_of(folder / "m.gguf")); });
    EXPECT_NE(said.find("weft serve makes vectors"), std::string::npos) << said;
  }
}

TEST(GgufEncodersTest, NameTheirLabels) {
  const GoldenModel golden("roberta_scores", "golden_encoders");
  const TemporaryFolder folder;
  GgufMetadata metadata = metadata_of(kScorer);
  metadata.set_strings("bert.classifier.output_labels", std::vector<std::string>{"sad", "fine", "glad"});
  write_encoder(kScorer, golden, metadata, folder / "m.gguf");
  const TextEncoderSource source(folder / "m.gguf");
  EXPECT_EQ(source.score_rule().labels, (std::vector<std::string>{"sad", "fine", "glad"}));
  EXPECT_EQ(source.embedding_rule().pooling, Pooling::mean);
}

struct WrongEncoder {
  const char* name;
  const GgufEncoder& encoder;
  const char* golden;
  void (*change)(GgufMetadata&);
  std::string_view message;
};

class BadGgufEncoderTest : public testing::TestWithParam<WrongEncoder> {};
const auto kUnchanged = [](GgufMetadata&) {};
INSTANTIATE_TEST_SUITE_P(
    Kinds, BadGgufEncoderTest,
    testing::Values(
        WrongEncoder{"Causal", kBert, "bert", [](GgufMetadata& m) { m.set<bool>("bert.attention.causal", true); },
                     "attention.causal"},
        WrongEncoder{"ScoresWithoutAPooler", kBert, "bert_scores", kUnchanged, "cls.output.weight"},
        WrongEncoder{"ScoresWithoutKinds", kScorerWithoutKinds, "roberta_scores", kUnchanged, "cls.output.weight"},
        WrongEncoder{"ScaledPositions", kNomic, "nomic_bert",
                     [](GgufMetadata& m) { m.set_string("nomic-bert.rope.scaling.type", "linear"); },
                     "rope.scaling.type"},
        WrongEncoder{"NoPositions", kNomic, "nomic_bert",
                     [](GgufMetadata& m) { m.set<float>("nomic-bert.rope.freq_base", 0); }, "rope.freq_base"},
        WrongEncoder{"NoWindow", kModern, "modernbert",
                     [](GgufMetadata& m) { m.set<uint32_t>("modern-bert.attention.sliding_window", 1); },
                     "attention.sliding_window"},
        WrongEncoder{"NoGlobalLayers", kModern, "modernbert",
                     [](GgufMetadata& m) { m.set<uint32_t>("modern-bert.attention.sliding_window_pattern", 0); },
                     "attention.sliding_window_pattern"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(BadGgufEncoderTest, IsRefusedByName) {
  const auto& [name, encoder, golden_name, change, message] = GetParam();
  const GoldenModel golden(golden_name, "golden_encoders");
  const TemporaryFolder folder;
  GgufMetadata metadata = metadata_of(encoder);
  change(metadata);
  write_encoder(encoder, golden, metadata, folder / "m.gguf");
  TestRank rank(cpu_kernels());
  const std::string said = message_of([&] { open_bert(rank.context, folder / "m.gguf"); });
  EXPECT_NE(said.find(message), std::string::npos) << said;
  EXPECT_NE(said.find("m.gguf"), std::string::npos) << said;
}

}  // namespace
}  // namespace weft
