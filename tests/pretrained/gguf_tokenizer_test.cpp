// Vocabularies of GGUF files: every pair of texts and ids that llama.cpp publishes with them.
#include "weft/pretrained/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/temporary_folder.h"
#include "formats/gguf_bytes.h"
#include "support/message_of.h"
#include "support/test_data.h"
#include "weft/text/readers/to_gguf_vocabulary.h"

namespace weft {
namespace {

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct VocabularyCase {
  const char* name;
  bool keeps_text;  // decoding gives back what was encoded
};

class GgufTokenizer : public testing::TestWithParam<VocabularyCase> {
 protected:
  std::string path() const {
    return test_data(std::string("tokenizers/llama.cpp/ggml-vocab-") + GetParam().name + ".gguf");
  }
};
INSTANTIATE_TEST_SUITE_P(All, GgufTokenizer,
                         testing::Values(VocabularyCase{"bert-bge", false}, VocabularyCase{"deepseek-coder", true},
                                         VocabularyCase{"falcon", true}, VocabularyCase{"gpt-2", true},
                                         VocabularyCase{"llama-spm", true}, VocabularyCase{"phi-3", true},
                                         VocabularyCase{"starcoder", true}),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The texts stand between lines of "__ggml_vocab_test__", the ids a line each. llama.cpp makes them without special
// tokens added, and without those written in a text parsed.
TEST_P(GgufTokenizer, GivesTheIdsOfLlamaCpp) {
  if (path().empty()) GTEST_SKIP() << no_test_data(GetParam().name);
  const auto tokenizer = open_gguf_tokenizer(path());
  const std::string texts = read_whole(path() + ".inp"), separator = "\n__ggml_vocab_test__\n";
  std::istringstream lines(read_whole(path() + ".out"));
  int count = 0;
  for (size_t at = 0; at < texts.size(); ++count) {
    const size_t end = std::min(texts.find(separator, at), texts.size());
    const std::string text = texts.substr(at, end - at);
    at = end + separator.size();
    std::string line;
    ASSERT_TRUE(std::getline(lines, line)) << "fewer lines of ids than texts";
    std::istringstream numbers(line);
    std::vector<int32_t> ids;
    for (int32_t id; numbers >> id;) ids.push_back(id);
    EXPECT_EQ(tokenizer->encode(text), ids) << '"' << text << '"';
    if (GetParam().keeps_text) EXPECT_EQ(tokenizer->decode(ids), text);
  }
  EXPECT_EQ(count, 46);
}

TEST_P(GgufTokenizer, SurvivesACheckpoint) {
  if (path().empty()) GTEST_SKIP() << no_test_data(GetParam().name);
  const auto tokenizer = open_gguf_tokenizer(path());
  const auto copy = parse_tokenizer(tokenizer->to_json(), "checkpoint");
  EXPECT_EQ(copy->fingerprint(), tokenizer->fingerprint());
  EXPECT_EQ(copy->vocab_size(), tokenizer->vocab_size());
  const std::string text = read_whole(path() + ".inp");
  const EncodeOptions options{.add_special = true, .parse_special = true};
  EXPECT_EQ(copy->encode(text, options), tokenizer->encode(text, options));
}

TEST(GgufTokenizerAgainst, ItsSentencePieceModel) {
  const std::string gguf = test_data("models/stories260K/stories260K.f32.gguf");
  if (gguf.empty()) GTEST_SKIP() << no_test_data("models/stories260K");
  const GgufVocabulary vocabulary = read_gguf_vocabulary(GgufFile(gguf));
  EXPECT_EQ(vocabulary.model, "llama");
  EXPECT_EQ(vocabulary.tokens.size(), 512u);
  EXPECT_EQ(vocabulary.add_bos_token, true);
  const auto tokenizer = make_gguf_tokenizer(vocabulary, gguf);
  EXPECT_EQ(tokenizer->encode("Once", {.add_special = true})[0], 1);
  EXPECT_EQ(tokenizer->end_of_document(), 2);
}

GgufVocabulary small() {
  return {.model = "gpt2",
          .pre = "gpt-2",
          .tokens = {"a", "b", "ab", "<|end|>"},
          .token_type = {1, 1, 1, 3},
          .merges = {"a b"},
          .eos_token_id = 3};
}

TEST(GgufVocabulary, MakesATokenizer) {
  const auto tokenizer = make_gguf_tokenizer(small(), "m.gguf");
  EXPECT_EQ(tokenizer->encode("abba"), (std::vector<int32_t>{2, 1, 0}));
  EXPECT_EQ(tokenizer->encode("a<|end|>", {.parse_special = true}), (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(tokenizer->end_of_document(), 3);
}

// Merges by their ranks, marks in place of spaces, and bytes for what no token spells.
TEST(GgufVocabulary, MakesATokenizerOfRanks) {
  GgufVocabulary v{.model = "gemma4",
                   .tokens = {"<unk>", "<bos>", "<turn|>", "<0xC3>", "<0xBC>", "a", "b", "\xE2\x96\x81",
                              "\xE2\x96\x81"
                              "a",
                              "ab"},
                   .token_type = {2, 3, 3, 6, 6, 1, 1, 1, 1, 1},
                   .merges = {"\xE2\x96\x81 a", "a b"},
                   .bos_token_id = 1,
                   .eos_token_id = 2,
                   .unknown_token_id = 0};
  const auto tokenizer = make_gguf_tokenizer(v, "m.gguf");
  EXPECT_EQ(tokenizer->encode("ab ab\xC3\xBC"), (std::vector<int32_t>{9, 8, 6, 3, 4}));
  EXPECT_EQ(tokenizer->encode("a", {.add_special = true}), (std::vector<int32_t>{1, 5}));
  EXPECT_EQ(tokenizer->encode("a<turn|>", {.parse_special = true}), (std::vector<int32_t>{5, 2}));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{8, 3, 4, 9}),
            " a\xC3\xBC"
            "ab");
  v.merges.clear();
  EXPECT_THROW(make_gguf_tokenizer(v, "m.gguf"), Error);
}

// Where scores of tokens may say less than ranks of pairs do.
// last.
TEST(GgufVocabulary, IsOneOfRanksWhereScoresSayLess) {
  GgufVocabulary v{.model = "gemma4", .tokens = {"<unk>"}, .token_type = {2}, .unknown_token_id = 0};
  for (int byte = 0; byte < 256; ++byte)
    v.tokens.push_back(fmt::format("<0x{:02X}>", byte)), v.token_type.push_back(6);
  for (const char* token : {"H", "e", "l", "o", "\xE2\x96\x81", "el", "lo", "ell", "ll", "ello"})
    v.tokens.emplace_back(token), v.token_type.push_back(1);
  v.merges = {"e l", "l o", "ell o", "el l", "l l"};
  v.add_bos_token = false;
  const auto tokenizer = make_gguf_tokenizer(v, "m.gguf");
  const GgufVocabulary told = gguf_vocabulary_of(*tokenizer, tokenizer->vocab_size());
  EXPECT_NE(told.model, kNoGgufModel);
  const auto again = make_gguf_tokenizer(told, "m.gguf");
  for (const char* text : {"Hello ello lo", " ell  oell\n"})
    EXPECT_EQ(again->encode(text), tokenizer->encode(text)) << text;
}

struct Ends {
  const char* name;
  std::vector<std::string> control, plain;  // tokens, in this order
  std::vector<std::pair<const char*, uint32_t>> keys;
  std::vector<int32_t> want;
};
class GgufEnds : public testing::TestWithParam<Ends> {};
INSTANTIATE_TEST_SUITE_P(
    All, GgufEnds,
    testing::Values(
        Ends{"NoneButTheTokenizers", {"<s>", "</s>"}, {"a"}, {{"eos_token_id", 1}}, {1}},
        Ends{"OfTurns", {"<eos>", "<start_of_turn>", "<end_of_turn>"}, {}, {{"eos_token_id", 0}}, {0, 2}},
        Ends{"ByKeys", {"</s>", "[END]", "[MORE]"}, {}, {{"eos_token_id", 0}, {"eot_token_id", 2}}, {0, 2}},
        Ends{"OfGemma4", {"<eos>", "<turn|>", "<|tool_response>"}, {}, {{"eos_token_id", 0}}, {0, 1, 2}},
        Ends{"WordsAreNone", {"</s>"}, {"<|im_end|>"}, {{"eos_token_id", 0}}, {0}},
        Ends{"OfHarmony",
             {"<|return|>", "<|end|>", "<|call|>"},
             {},
             {{"eos_token_id", 0}, {"eot_token_id", 1}},
             {0, 2}},
        Ends{"OfMessages", {"<|end|>", "<|call|>"}, {}, {{"eos_token_id", 0}}, {0, 1}},
        Ends{"BeyondAllTokens", {"</s>"}, {}, {{"eos_token_id", 7}, {"eom_token_id", 0}}, {0}}),
    [](const auto& test) { return test.param.name; });
TEST_P(GgufEnds, AreThoseOfTheFile) {
  const Ends& c = GetParam();
  const size_t count = c.control.size() + c.plain.size();
  GgufBytes bytes(0, 2 + c.keys.size());
  bytes.key("tokenizer.ggml.tokens", GgufType::array).array(GgufType::string, count);
  for (const auto& tokens : {c.control, c.plain})
    for (const std::string& token : tokens) bytes.string(token);
  bytes.key("tokenizer.ggml.token_type", GgufType::array).array(GgufType::i32, count);
  for (size_t i = 0; i < count; ++i) bytes.number(int32_t(i < c.control.size() ? 3 : 1));
  for (const auto& [key, id] : c.keys) bytes.key(fmt::format("tokenizer.ggml.{}", key), GgufType::u32, id);
  const TemporaryFolder folder;
  std::ofstream(folder / "m.gguf", std::ios::binary) << bytes.bytes();
  EXPECT_EQ(read_gguf_special_ids(GgufFile(folder / "m.gguf")).ends, c.want);
}

TEST(GgufWithoutATokenizer, SaysSo) {
  const TemporaryFolder folder;
  GgufBytes none(0, 1);
  none.key("tokenizer.ggml.model", GgufType::string).string("none");
  std::ofstream(folder / "none.gguf", std::ios::binary) << none.bytes();
  std::ofstream(folder / "silent.gguf", std::ios::binary) << GgufBytes(0, 0).bytes();
  for (const char* name : {"none.gguf", "silent.gguf"}) {
    const std::string message = message_of<UsageError>([&] { open_gguf_tokenizer(folder / name); });
    EXPECT_TRUE(message.starts_with(folder / name + " holds no tokenizer")) << message;
    EXPECT_NE(message.find("--ids"), std::string::npos) << message;
    EXPECT_EQ(read_gguf_special_ids(GgufFile(folder / name)), SpecialIds());
  }
}

struct Wrong {
  const char* name;
  void (*change)(GgufVocabulary&);
  const char* says;
};
class BadGgufVocabulary : public testing::TestWithParam<Wrong> {};
INSTANTIATE_TEST_SUITE_P(
    All, BadGgufVocabulary,
    testing::Values(Wrong{"UnknownModel", [](GgufVocabulary& v) { v.model = "rwkv"; }, "\"rwkv\""},
                    Wrong{"UnknownPre", [](GgufVocabulary& v) { v.pre = "gpt-9"; }, "\"gpt-9\""},
                    Wrong{"DefaultPre", [](GgufVocabulary& v) { v.pre = "default"; }, "\"default\""},
                    Wrong{"NoPre", [](GgufVocabulary& v) { v.pre = ""; }, "tokenizer.ggml.pre"},
                    Wrong{"NoTokens", [](GgufVocabulary& v) { v.tokens.clear(), v.token_type.clear(); },
                          "tokens has 0"},
                    Wrong{"TooFewTypes", [](GgufVocabulary& v) { v.token_type.pop_back(); }, "3 types"},
                    Wrong{"TooManyScores", [](GgufVocabulary& v) { v.scores.resize(5); }, "5 scores"},
                    Wrong{"UnknownType", [](GgufVocabulary& v) { v.token_type[1] = 7; }, "type 7"},
                    Wrong{"EmptyToken", [](GgufVocabulary& v) { v.tokens[1] = ""; }, "token 1"},
                    Wrong{"NotUtf8", [](GgufVocabulary& v) { v.tokens[1] = "\xFF"; }, "token 1"},
                    Wrong{"TwiceTheSame", [](GgufVocabulary& v) { v.tokens[1] = "a"; }, "\"a\""},
                    Wrong{"MergeOfNothing", [](GgufVocabulary& v) { v.merges = {"a c"}; }, "\"c\""},
                    Wrong{"MergeToNothing", [](GgufVocabulary& v) { v.merges = {"b b"}; }, "\"bb\""},
                    Wrong{"MergeOfThree", [](GgufVocabulary& v) { v.merges = {"a b a"}; }, "merges"},
                    Wrong{"UnigramWithoutScores", [](GgufVocabulary& v) { v.model = "t5"; }, "scores"},
                    Wrong{"BertWithoutItsTokens", [](GgufVocabulary& v) { v.model = "bert"; }, "unknown words"}),
    [](const auto& test) { return test.param.name; });
TEST_P(BadGgufVocabulary, IsRefusedByName) {
  GgufVocabulary vocabulary = small();
  GetParam().change(vocabulary);
  try {
    make_gguf_tokenizer(vocabulary, "m.gguf");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("m.gguf"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(GetParam().says), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft
