// EmbeddingRule: read from the files that sentence-transformers writes and from GGUF's key, and kept by conversions.
#include "weft/pretrained/embedding_rule.h"

#include <cmath>
#include <fstream>

#include "base/temporary_folder.h"
#include "pretrained/golden_models.h"
#include "support/message_of.h"
#include "weft/pretrained/export.h"
#include "weft/pretrained/export_gguf.h"
#include "weft/pretrained/model_source.h"

namespace weft {
namespace {

constexpr const char* kModules = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])";

void write(const std::string& folder, const std::string& name, const std::string& text) {
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

struct PoolingFile {
  const char *name, *text;
  Pooling pooling = Pooling::last;
  const char* unknown = "";
};
class PoolingFileTest : public testing::TestWithParam<PoolingFile> {};
INSTANTIATE_TEST_SUITE_P(
    Files, PoolingFileTest,
    testing::Values(
        PoolingFile{"last", R"({"pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true})"},
        PoolingFile{"mean", R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false})", Pooling::mean},
        PoolingFile{"weighted", R"({"pooling_mode_weightedmean_tokens": true})", Pooling::weighted_mean},
        PoolingFile{"by_name", R"({"word_embedding_dimension": 8, "pooling_mode": "mean"})", Pooling::mean},
        PoolingFile{"cls", R"({"pooling_mode_cls_token": true})", Pooling::first},
        PoolingFile{"max", R"({"pooling_mode_max_tokens": true})", Pooling::last,
                    "pooling by pooling_mode_max_tokens"},
        PoolingFile{"two", R"({"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": true})", Pooling::last,
                    "pooling by pooling_mode_max_tokens and pooling_mode_mean_tokens"},
        PoolingFile{"without_prompt", R"({"pooling_mode_mean_tokens": true, "include_prompt": false})", Pooling::mean,
                    "pooling without the prompt (include_prompt)"}),
    [](const auto& test) { return test.param.name; });

TEST_P(PoolingFileTest, IsRead) {
  const TemporaryFolder folder;
  write(folder.path(), "modules.json", kModules);
  write(folder.path(), "1_Pooling/config.json", GetParam().text);
  const EmbeddingRule rule = read_embedding_rule(folder.path());
  EXPECT_EQ(rule.pooling, GetParam().pooling);
  EXPECT_EQ(rule.unknown, GetParam().unknown);
  EXPECT_TRUE(rule.normalises);
}

TEST(EmbeddingRuleTest, IsTheDefaultWithoutFiles) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_embedding_rule(folder.path()), EmbeddingRule());
}

TEST(EmbeddingRuleTest, ReadsWhatFilesSayBesidePooling) {
  const TemporaryFolder folder;
  write(folder.path(), "modules.json", R"([{"path": "", "type": "a.b.Transformer"},
        {"path": "p", "type": "sentence_transformers.sentence_transformer.modules.Pooling"}])");
  write(folder.path(), "p/config.json", R"({"pooling_mode_mean_tokens": true})");
  write(folder.path(), "config_sentence_transformers.json",
        R"({"prompts": {"query": "Q: ", "document": ""}, "default_prompt_name": null})");
  const EmbeddingRule want{
      .pooling = Pooling::mean, .normalises = false, .prompts = {{"query", "Q: "}, {"document", ""}}};
  EXPECT_EQ(read_embedding_rule(folder.path()), want);
  write(folder.path(), "modules.json", R"([{"path": "", "type": "Transformer"}, {"path": "d", "type": "x.LSTM"}])");
  EXPECT_EQ(read_embedding_rule(folder.path()).unknown, "a module LSTM");
}

TEST(EmbeddingRuleTest, RefusesWhatIsMalformed) {
  const TemporaryFolder folder;
  const auto message = [&](const std::string& name, const std::string& text) {
    write(folder.path(), name, text);
    return message_of([&] { read_embedding_rule(folder.path()); });
  };
  const auto expect = [](const std::string& got, const char* part) {
    EXPECT_NE(got.find(part), std::string::npos) << got;
  };
  expect(message("modules.json", R"([{"path": "../x", "type": "a.Pooling"}])"), "\"../x\" is no folder");
  expect(message("modules.json", R"([{"path": "..", "type": "a.Pooling"}])"), "\"..\" is no folder");
  expect(message("modules.json", R"([{"path": ""}])"), "type");
  expect(message("modules.json", "7"), "modules.json");
  expect(message("modules.json", R"([{"path": "none", "type": "a.Pooling"}])"), "none/config.json");
  write(folder.path(), "modules.json", "[]");
  expect(message("config_sentence_transformers.json", R"({"prompts": {}, "default_prompt_name": "query"})"),
         "none of its prompts");
}

TEST(EmbeddingRuleTest, IsKeptByConversions) {
  const GoldenModel golden("qwen3");
  for (const Pooling pooling : {Pooling::last, Pooling::mean, Pooling::weighted_mean})
    for (const bool normalises : {true, false}) {
      EmbeddingRule rule{.pooling = pooling, .normalises = normalises};
      if (!normalises) rule.prompts = {{"query", "Q: "}}, rule.default_prompt = "query";
      std::filesystem::remove(golden.path() + "/modules.json");
      write_embedding_rule(rule, 32, golden.path(), FileSystem::real());
      const auto source = open_model(golden.path());
      EXPECT_EQ(source->embedding_rule(), rule);
      const TemporaryFolder to;
      export_hugging_face(*source, to / "folder");
      EXPECT_EQ(open_model(to / "folder")->embedding_rule(), rule);
      const std::vector<std::string> notes = export_gguf(*source, to / "model.gguf").notes;
      const bool is_all = normalises && pooling != Pooling::weighted_mean;
      const EmbeddingRule in_gguf = open_model(to / "model.gguf")->embedding_rule();
      EXPECT_EQ(in_gguf.pooling, pooling == Pooling::weighted_mean ? Pooling::last : pooling);
      EXPECT_EQ(std::ranges::any_of(notes, [](const std::string& n) { return n.find("vectors") != n.npos; }),
                !is_all);
    }
}

struct DenseFile {
  const char *name, *modules, *text;
  const char* unknown = "";
};
class DenseFileTest : public testing::TestWithParam<DenseFile> {};
constexpr const char* kBeforeNorm = R"([{"path": "d", "type": "x.Dense"}, {"path": "", "type": "x.Normalize"}])";
constexpr const char* kBehindNorm = R"([{"path": "", "type": "x.Normalize"}, {"path": "d", "type": "x.Dense"}])";
INSTANTIATE_TEST_SUITE_P(
    Files, DenseFileTest,
    testing::Values(DenseFile{"plain", kBeforeNorm, R"({"in_features": 3, "out_features": 2})"},
                    DenseFile{"behind", kBehindNorm, R"({"in_features": 3, "out_features": 2})",
                              "a module Dense behind Normalize"},
                    DenseFile{"tokens", kBeforeNorm,
                              R"({"in_features": 3, "out_features": 2, "module_input_name": "token_embeddings"})",
                              "a module Dense of token_embeddings"},
                    DenseFile{"residual", kBeforeNorm,
                              R"({"in_features": 3, "out_features": 2, "use_residual": true})",
                              "a module Dense with use_residual"},
                    DenseFile{"other", kBeforeNorm,
                              R"({"in_features": 3, "out_features": 2, "activation_function": "torch.nn.Mish"})",
                              "a module Dense with activation_function = torch.nn.Mish"}),
    [](const auto& test) { return test.param.name; });

TEST_P(DenseFileTest, IsRead) {
  const TemporaryFolder folder;
  write(folder.path(), "modules.json", GetParam().modules);
  write(folder.path(), "d/config.json", GetParam().text);
  const EmbeddingRule rule = read_embedding_rule(folder.path());
  EXPECT_EQ(rule.unknown, GetParam().unknown);
  if (!rule.unknown.empty()) return;
  const DenseLayer want{.file = folder / "d",
                        .weight = "linear.weight",
                        .bias = "linear.bias",
                        .in = 3,
                        .out = 2,
                        .activation = Activation::tanh};
  EXPECT_EQ(rule.dense, std::vector{want});
}

// A file of one layer; values are a function of their index.
DenseLayer write_layer(const std::string& folder, int64_t in, int64_t out, bool has_bias, Activation activation) {
  std::filesystem::create_directories(folder);
  std::vector<SafetensorsInfo> infos{{"linear.weight", DType::f32, Shape{out, in}}};
  if (has_bias) infos.push_back({"linear.bias", DType::f32, Shape{out}});
  SafetensorsWriter writer(FileSystem::real(), folder + "/model.safetensors", infos);
  for (const SafetensorsInfo& info : infos) {
    const std::vector<float> values = golden_values(info.name, {info.shape[0], info.shape.rank() > 1 ? in : 1});
    writer.write(std::as_bytes(std::span(values)));
  }
  writer.finish();
  return {.file = folder,
          .weight = "linear.weight",
          .bias = has_bias ? "linear.bias" : "",
          .in = in,
          .out = out,
          .activation = activation};
}

TEST(DenseLayersTest, AreProductsOfTheVector) {
  const TemporaryFolder folder;
  const std::vector layers{write_layer(folder / "a", 37, 21, false, Activation::identity),
                           write_layer(folder / "b", 21, 5, true, Activation::tanh)};
  std::vector<float> vector(37);
  for (size_t i = 0; i < vector.size(); ++i) vector[i] = float(i) / 37 - 0.4f;
  std::vector<double> want(vector.begin(), vector.end());
  for (const DenseLayer& layer : layers) {
    const std::vector<float> weight = golden_values("linear.weight", {layer.out, layer.in}),
                             bias = golden_values("linear.bias", {layer.out, 1});
    std::vector<double> next;
    for (size_t o = 0; o < size_t(layer.out); ++o) {
      double sum = layer.bias.empty() ? 0 : double(bias[o]);
      for (size_t i = 0; i < want.size(); ++i) sum += double(weight[o * want.size() + i]) * want[i];
      next.push_back(layer.bias.empty() ? sum : std::tanh(sum));
    }
    want = next;
  }
  DenseLayers(layers, 37).apply(vector);
  ASSERT_EQ(vector.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(double(vector[i]), want[i], 1e-6);
}

TEST(DenseLayersTest, RefuseWhatDoesNotFit) {
  const TemporaryFolder folder;
  DenseLayer layer = write_layer(folder / "a", 4, 3, false, Activation::identity);
  const auto message = [&] { return message_of([&] { DenseLayers(std::span(&layer, 1), 4); }); };
  EXPECT_NO_THROW(DenseLayers(std::span(&layer, 1), 4));
  layer.out = 2;
  EXPECT_NE(message().find("linear.weight [3, 4] F32 must be [2, 4]"), std::string::npos) << message();
  layer.out = 3, layer.bias = "linear.bias";
  EXPECT_NE(message().find("there is no tensor linear.bias"), std::string::npos) << message();
  EXPECT_NE(message_of([&] { DenseLayers(std::span(&layer, 1), 5); }).find("have 5"), std::string::npos);
}

// Without files these have other vectors than models that write.
TEST(EmbeddingRuleTest, IsKeptOfModelsThatReadBothWays) {
  const GoldenModel golden("eurobert");
  EXPECT_EQ(open_model(golden.path())->embedding_rule(), EmbeddingRule{.pooling = Pooling::mean});
  for (const Pooling pooling : {Pooling::mean, Pooling::last, Pooling::first}) {
    std::filesystem::remove(golden.path() + "/modules.json");
    const EmbeddingRule rule{.pooling = pooling};
    write_embedding_rule(rule, 32, golden.path(), FileSystem::real(), Pooling::mean);
    const auto source = open_model(golden.path());
    EXPECT_EQ(source->embedding_rule(), rule);
    const TemporaryFolder to;
    export_hugging_face(*source, to / "folder");
    EXPECT_EQ(open_model(to / "folder")->embedding_rule(), rule);
    export_gguf(*source, to / "model.gguf");
    EXPECT_EQ(open_model(to / "model.gguf")->embedding_rule(), rule);
  }
}

TEST(EmbeddingRuleTest, ProjectionsAreKeptByConversions) {
  const GoldenModel golden("gemma3_both_ways");
  const TemporaryFolder layers;
  const std::vector plain{write_layer(layers / "a", 32, 21, false, Activation::identity),
                          write_layer(layers / "b", 21, 5, false, Activation::identity)};
  const std::vector other{write_layer(layers / "c", 32, 5, true, Activation::tanh)};
  for (const auto& dense : {plain, other}) {
    std::filesystem::remove_all(golden.path() + "/modules.json");
    for (const char* name : {"2_Dense", "3_Dense"}) std::filesystem::remove_all(golden.path() + "/" + name);
    write_embedding_rule({.pooling = Pooling::mean, .dense = dense}, 32, golden.path(), FileSystem::real());
    const auto made = [&](const ModelSource& source) {
      const EmbeddingRule rule = source.embedding_rule();
      EXPECT_EQ(rule.unknown, "");
      EXPECT_TRUE(rule.normalises);
      EXPECT_EQ(rule.pooling, Pooling::mean);
      std::vector<float> vector(32, 0.5f);
      DenseLayers(rule.dense, 32).apply(vector);
      return vector;
    };
    const auto source = open_model(golden.path());
    std::vector<float> want(32, 0.5f);
    DenseLayers(dense, 32).apply(want);
    EXPECT_EQ(made(*source), want);
    const TemporaryFolder to;
    export_hugging_face(*source, to / "folder");
    EXPECT_EQ(made(*open_model(to / "folder")), want);
    const std::vector<std::string> notes = export_gguf(*source, to / "model.gguf").notes;
    const bool is_all = dense.size() == plain.size();
    EXPECT_EQ(std::ranges::none_of(notes, [](const std::string& n) { return n.find("vectors") != n.npos; }), is_all);
    const auto opened = open_model(to / "model.gguf");
    if (is_all)
      EXPECT_EQ(made(*opened), want);
    else
      EXPECT_TRUE(opened->embedding_rule().dense.empty());
  }
}

}  // namespace
}  // namespace weft
