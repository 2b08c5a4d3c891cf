// Tokenizers of every format give the ids of the implementations they come from, whole, in parts and out of a
// checkpoint.
#include "text/golden.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

class Golden : public testing::TestWithParam<GoldenCase> {
 protected:
  void SetUp() override {
    if (GetParam().path().empty()) GTEST_SKIP() << no_test_data(GetParam().data);
    tokenizer_ = open_tokenizer(FileSystem::real(), GetParam().path());
    lines_ = read_golden(GetParam().name + ".golden");
    ASSERT_GE(lines_.size(), 12u);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<GoldenLine> lines_;
};
INSTANTIATE_TEST_SUITE_P(All, Golden, testing::ValuesIn(golden_cases()), [](const auto& test) {
  const bool is_other_file = test.param.data.ends_with("vocab.bpe");
  return test.param.name + (is_other_file ? "_files" : "");
});

TEST_P(Golden, GivesTheIds) {
  for (const GoldenLine& line : lines_)
    EXPECT_EQ(tokenizer_->encode(line.text, GetParam().options), line.ids) << '"' << line.text << '"';
}

TEST_P(Golden, DecodesToTheText) {
  if (GetParam().options.add_special) GTEST_SKIP() << "special tokens were added";
  for (const GoldenLine& line : lines_) {
    if (GetParam().keeps_text(line.text) && valid_utf8_prefix(line.text) == line.text.size())
      EXPECT_EQ(tokenizer_->decode(line.ids, true), line.text);
  }
}

TEST_P(Golden, StreamsWhatItDecodes) {
  for (const GoldenLine& line : lines_) {
    StreamDecoder stream(*tokenizer_);
    std::string text;
    for (const int32_t id : line.ids) {
      const std::string piece = stream.push(id);
      EXPECT_EQ(valid_utf8_prefix(piece), piece.size());
      text += piece;
    }
    text += stream.finish();
    EXPECT_EQ(text, replace_invalid_utf8(tokenizer_->decode(line.ids))) << '"' << line.text << '"';
  }
}

TEST_P(Golden, SurvivesACheckpoint) {
  const auto copy = parse_tokenizer(tokenizer_->to_json(), "checkpoint");
  EXPECT_EQ(copy->fingerprint(), tokenizer_->fingerprint());
  EXPECT_EQ(copy->vocab_size(), tokenizer_->vocab_size());
  EXPECT_EQ(copy->begin_of_document(), tokenizer_->begin_of_document());
  EXPECT_EQ(copy->end_of_document(), tokenizer_->end_of_document());
  for (const GoldenLine& line : lines_) EXPECT_EQ(copy->encode(line.text, GetParam().options), line.ids);
}

TEST_P(Golden, FindsWhatItSpells) {
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    const std::string spelling = tokenizer_->spelling(id);
    if (!spelling.empty()) EXPECT_EQ(tokenizer_->find(spelling), id);
  }
}

// All lines as one text, in pieces of every size: the ids are those of the whole.
TEST_P(Golden, CutsWherePiecesEncodeAlike) {
  if (GetParam().options.add_special) GTEST_SKIP() << "a text has its special tokens once";
  std::string text;
  for (int i = 0; i < 3; ++i) {
    for (const GoldenLine& line : lines_) text += line.text + (i == 0 ? " x" : i == 1 ? "\n" : "");
  }
  const std::vector<int32_t> whole = tokenizer_->encode(text, GetParam().options);
  for (const size_t step : {1u, 7u, 100u, 1000u}) {
    std::vector<int32_t> ids;
    std::string held;
    size_t cuts = 0;
    for (size_t at = 0; at < text.size(); at += step) {
      held += text.substr(at, step);
      const bool is_last = at + step >= text.size();
      const size_t length = is_last ? held.size() : tokenizer_->cut(held);
      if (length == 0) continue;
      EncodeOptions options = GetParam().options;
      options.continues = cuts++ > 0;
      tokenizer_->encode(held.substr(0, length), options, ids);
      held.erase(0, length);
    }
    EXPECT_EQ(ids, whole) << "in steps of " << step << " with " << cuts << " cuts";
  }
}

}  // namespace
}  // namespace weft
