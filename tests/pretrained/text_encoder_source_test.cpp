// TextEncoderSource: how long texts may be, what vectors and scores mean, by the files of a folder.
#include "weft/pretrained/encoders/text_encoder_source.h"

#include "pretrained/golden_models.h"
#include "support/message_of.h"

namespace weft {
namespace {

void write_file_of(const GoldenModel& model, const char* name, const char* text) {
  std::filesystem::create_directories(std::filesystem::path(model.path() + "/" + name).parent_path());
  std::ofstream(model.path() + "/" + name) << text;
}

TEST(TextEncoderSourceTest, TakesMeansWhereNoFileSaysOtherwise) {
  const GoldenModel model("bert", "golden_encoders");
  const TextEncoderSource source(model.path());
  EXPECT_EQ(source.context(), 16);
  EXPECT_EQ(source.embedding_rule(), EmbeddingRule{.pooling = Pooling::mean});
  EXPECT_EQ(source.score_rule(), ScoreRule());
  EXPECT_EQ(source.dtype(), DType::f32);
  write_file_of(model, "modules.json", R"([{"type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}])");
  write_file_of(model, "1_Pooling/config.json", R"({"pooling_mode_cls_token": true})");
  EXPECT_EQ(TextEncoderSource(model.path()).embedding_rule(),
            (EmbeddingRule{.pooling = Pooling::first, .normalises = false}));
}

TEST(TextEncoderSourceTest, CountsPositionsBehindThatOfPadding) {
  const TextEncoderSource source(GoldenModel("roberta_scores", "golden_encoders").path());
  EXPECT_EQ(source.config().encoder.positions, 18);
  EXPECT_EQ(source.context(), 16);
  EXPECT_EQ(source.score_rule().labels, (std::vector<std::string>{"c0", "c1", "c2"}));
}

struct Limits {
  const char *name, *of_texts, *of_tokenizer;
  int64_t context;
};
class LongestTextTest : public testing::TestWithParam<Limits> {};
INSTANTIATE_TEST_SUITE_P(Files, LongestTextTest,
                         testing::Values(Limits{"neither", "{}", "{}", 16},
                                         Limits{"texts", R"({"max_seq_length": 9})", "{}", 9},
                                         Limits{"null", R"({"max_seq_length": null})", "{}", 16},
                                         Limits{"tokenizer", "{}", R"({"model_max_length": 7})", 7},
                                         Limits{"none", "{}", R"({"model_max_length": 1e30})", 16},
                                         Limits{"too_many", R"({"max_seq_length": 512})", "{}", 16}),
                         [](const auto& test) { return std::string(test.param.name); });
TEST_P(LongestTextTest, IsThatOfTheStrictest) {
  const GoldenModel model("bert", "golden_encoders");
  write_file_of(model, "sentence_bert_config.json", GetParam().of_texts);
  write_file_of(model, "tokenizer_config.json", GetParam().of_tokenizer);
  EXPECT_EQ(TextEncoderSource(model.path()).context(), GetParam().context);
}

// As BERT's tokenizers do, of which the library says what they give.
TEST(TextEncoderSourceTest, TellsTextsApartWhereKindsAreGiven) {
  const GoldenModel bert("bert", "golden_encoders"), roberta("roberta", "golden_encoders");
  for (const GoldenModel* model : {&bert, &roberta})
    write_file_of(*model, "tokenizer.json", R"({
    "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "decoder": null,
    "post_processor": {"type": "BertProcessing", "sep": ["a", 0], "cls": ["b", 1]},
    "model": {"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9, "vocab": {"a": 0, "b": 1}}})");
  const auto tells_apart = [](const GoldenModel& model) {
    const TextEncoderSource source(model.path());
    return source.around_pair(*source.tokenizer())->tells_apart;
  };
  EXPECT_TRUE(tells_apart(bert));
  EXPECT_FALSE(tells_apart(roberta)) << "it has one kind of text";
  write_file_of(bert, "tokenizer_config.json", R"({"model_input_names": ["input_ids", "token_type_ids"]})");
  EXPECT_TRUE(tells_apart(bert));
  write_file_of(bert, "tokenizer_config.json", R"({"model_input_names": ["input_ids", "attention_mask"]})");
  EXPECT_FALSE(tells_apart(bert));
}

TEST(TextEncoderSourceTest, NamesWhatIsWrong) {
  const GoldenModel model("bert", "golden_encoders");
  const auto why = [&] { return message_of([&] { const TextEncoderSource source(model.path()); }); };
  write_file_of(model, "sentence_bert_config.json", R"({"max_seq_length": 0})");
  EXPECT_NE(why().find("max_seq_length is 0"), std::string::npos) << why();
  write_file_of(model, "config.json", R"({"model_type": "roberta", "vocab_size": 13, "hidden_size": 16,
    "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20, "max_position_embeddings": 2})");
  EXPECT_NE(why().find("max_position_embeddings"), std::string::npos) << why();
  write_file_of(model, "config.json", R"({"model_type": "llama"})");
  EXPECT_NE(why().find("no BERT"), std::string::npos) << why();
}

}  // namespace
}  // namespace weft
