// ScoreRule: what config.json says of scores, and models that make them, read and written.
#include "weft/pretrained/score_rule.h"

#include <nlohmann/json.hpp>

#include "pretrained/golden_models.h"
#include "support/message_of.h"
#include "weft/pretrained/export.h"
#include "weft/pretrained/hf_family.h"

namespace weft {
namespace {

using nlohmann::json;

ScoreRule rule_of(const json& config) {
  const JsonDocument document = JsonDocument::parse(config.dump(), "config.json");
  return read_score_rule(document.root());
}

TEST(ScoreRuleTest, NamesLabelsAndSaysWhatScoresMean) {
  using enum ScoreRule::Activation;
  EXPECT_EQ(rule_of(json::object()), (ScoreRule{{"LABEL_0", "LABEL_1"}, softmax}));  // as the library counts
  EXPECT_EQ(rule_of({{"num_labels", 1}}), (ScoreRule{{"LABEL_0"}, sigmoid}));
  EXPECT_EQ(rule_of({{"id2label", {{"0", "no"}, {"1", "yes"}, {"2", "perhaps"}}}}),
            (ScoreRule{{"no", "yes", "perhaps"}, softmax}));
  EXPECT_EQ(rule_of({{"num_labels", 1}, {"problem_type", "regression"}}), (ScoreRule{{"LABEL_0"}, none}));
  EXPECT_EQ(rule_of({{"id2label", {{"0", "a"}, {"1", "b"}}}, {"problem_type", "multi_label_classification"}}),
            (ScoreRule{{"a", "b"}, sigmoid}));
}

TEST(ScoreRuleTest, TakesTheActivationThatWasTrainedWith) {
  using enum ScoreRule::Activation;
  const auto activation = [](const json& config, const json& file) {
    const TemporaryFolder folder;
    std::ofstream(folder / "config.json") << config;
    if (!file.is_null()) std::ofstream(folder / "config_sentence_transformers.json") << file;
    return read_score_rule(folder.path()).activation;
  };
  const json identity = "torch.nn.modules.linear.Identity", sigmoid_class = "torch.nn.modules.activation.Sigmoid";
  json config = {{"num_labels", 1}};
  EXPECT_EQ(activation(config, {}), sigmoid);
  EXPECT_EQ(activation(config, {{"activation_fn", identity}}), none);
  EXPECT_EQ(activation(config, {{"prompts", json::object()}}), sigmoid);
  config["sbert_ce_default_activation_function"] = identity;
  EXPECT_EQ(activation(config, {}), none);
  config["sentence_transformers"] = {{"activation_fn", sigmoid_class}};
  EXPECT_EQ(activation(config, {}), sigmoid);
  EXPECT_EQ(activation({{"num_labels", 2}}, {{"activation_fn", "torch.nn.modules.activation.Softmax"}}), softmax);
}

struct BadLabels {
  const char *name, *json, *message;
};
class BadLabelsTest : public testing::TestWithParam<BadLabels> {};
INSTANTIATE_TEST_SUITE_P(Configs, BadLabelsTest,
                         testing::Values(BadLabels{"gap", R"({"id2label": {"0": "a", "2": "b"}})", "number 1"},
                                         BadLabels{"none", R"({"id2label": {}})", "id2label"},
                                         BadLabels{"list", R"({"id2label": ["a"]})", "id2label"},
                                         BadLabels{"zero", R"({"num_labels": 0})", "num_labels"},
                                         BadLabels{"number", R"({"id2label": {"0": 1}})", "id2label"}),
                         [](const auto& test) { return std::string(test.param.name); });
TEST_P(BadLabelsTest, AreRefused) {
  const std::string message = message_of([] { rule_of(json::parse(GetParam().json)); });
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
}

TEST(ScoreRuleTest, MakesProbabilities) {
  std::vector<float> scores{1000, 1000 - std::log(3.0f), -5000};
  activate(ScoreRule::Activation::softmax, scores);
  EXPECT_NEAR(scores[0], 0.75, 1e-4);
  EXPECT_NEAR(scores[1], 0.25, 1e-4);
  EXPECT_EQ(scores[2], 0);
  scores = {0, std::log(3.0f), -1000};
  activate(ScoreRule::Activation::sigmoid, scores);
  EXPECT_NEAR(scores[0], 0.5, 1e-6);
  EXPECT_NEAR(scores[1], 0.75, 1e-6);
  EXPECT_EQ(scores[2], 0);
  scores = {-3, 4};
  activate(ScoreRule::Activation::none, scores);
  EXPECT_EQ(scores, (std::vector<float>{-3, 4}));
}

TEST(ScoreClassTest, StandsBesideTheOneThatWrites) {
  EXPECT_EQ(score_class_of("LlamaForCausalLM"), "LlamaForSequenceClassification");
  EXPECT_EQ(score_class_of("GPT2LMHeadModel"), "GPT2ForSequenceClassification");
  const auto scores = [](const char* text) { return scores_texts(JsonDocument::parse(text, "config.json").root()); };
  EXPECT_TRUE(scores(R"({"architectures": ["Qwen3ForSequenceClassification"]})"));
  EXPECT_FALSE(scores(R"({"architectures": ["Qwen3ForCausalLM"]})"));
  EXPECT_FALSE(scores("{}"));
}

// A folder says its own names of labels; and what weft writes, its own.
TEST(ScoreModelTest, IsReadAndWritten) {
  const GoldenModel golden("llama_scores");
  const auto source = open_model(golden.path());
  EXPECT_EQ(source->config().labels, 3);
  EXPECT_EQ(source->score_rule().labels, (std::vector<std::string>{"bad", "fair", "good"}));
  const TemporaryFolder folder;
  export_hugging_face(*source, folder / "same");
  EXPECT_EQ(open_model(folder / "same")->score_rule(), source->score_rule());
  const HfText text = write_hf_config(source->config());
  const json written = json::parse(text.json);
  EXPECT_EQ(written["architectures"], json({"LlamaForSequenceClassification"}));
  EXPECT_EQ(written["id2label"]["2"], "LABEL_2");
  EXPECT_EQ(written["label2id"]["LABEL_2"], 2);
  EXPECT_EQ(parse_hf_config(text.json, "config.json").model.labels, 3);
}

}  // namespace
}  // namespace weft
