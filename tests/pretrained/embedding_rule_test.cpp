// EmbeddingRule: read from the files that sentence-transformers writes and from GGUF's key, and kept by conversions.
#include "weft/pretrained/embedding_rule.h"

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
  write(folder.path(), "modules.json", R"([{"path": "", "type": "Transformer"}, {"path": "d", "type": "x.Dense"}])");
  EXPECT_EQ(read_embedding_rule(folder.path()).unknown, "a module Dense");
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

}  // namespace
}  // namespace weft
