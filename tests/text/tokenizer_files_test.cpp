// Tokenizer files: found by path or in a folder, SentencePiece and tiktoken files written by hand, and damaged ones.
#include "weft/text/tokenizer_files.h"

#include <gtest/gtest.h>

#include "base/temporary_folder.h"
#include "text/golden.h"
#include "weft/text/base64.h"
#include "weft/text/readers/sentencepiece.h"
#include "weft/text/readers/tiktoken.h"

namespace weft {
namespace {

using Ids = std::vector<int32_t>;

class TokenizerFiles : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  std::unique_ptr<Tokenizer> open(const std::string& name = "") {
    return open_tokenizer(FileSystem::real(), name.empty() ? folder_.path() : folder_ / name);
  }
  TemporaryFolder folder_;
};

SentencePieceModel small_model(SentencePieceModel::Kind kind) {
  using Type = SentencePieceModel::Type;
  SentencePieceModel model{.kind = kind};
  model.pieces = {{"<unk>", 0, Type::unknown}, {"<s>", 0, Type::control}, {"</s>", 0, Type::control},
                  {"▁", -1, Type::normal},     {"a", -2, Type::normal},   {"b", -3, Type::normal},
                  {"▁a", -4, Type::normal},    {"ab", -5, Type::normal},  {"▁ab", -6, Type::unused}};
  return model;
}

// Of bytes and "th", "the", " the".
std::string small_tiktoken() {
  std::string text;
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte)
    text += base64_of(std::string(1, char(uint8_t(byte)))) + " " + std::to_string(rank++) + "\n";
  for (const char* token : {"th", "the", " the"}) text += base64_of(token) + " " + std::to_string(rank++) + "\n";
  return text;
}

TEST_F(TokenizerFiles, OfHuggingFaceHaveHintsBesideThem) {
  write("tokenizer.json", read_whole(text_data("bpe_fallback.json")));
  EXPECT_EQ(open()->begin_of_document(), 1);
  EXPECT_EQ(open()->end_of_document(), std::nullopt);
  write("special_tokens_map.json", R"({"eos_token":{"content":"</s>"}})");
  EXPECT_EQ(open()->end_of_document(), 2);
  write("tokenizer_config.json", R"({"eos_token":"<unk>","bos_token":null})");
  EXPECT_EQ(open("tokenizer.json")->end_of_document(), 0);
  EXPECT_TRUE(holds_tokenizer(FileSystem::real(), folder_.path()));
}

TEST_F(TokenizerFiles, OfCheckpointsAreFound) {
  write("tokenizer.weft.json", R"({"type":"byte","version":1})");
  EXPECT_EQ(open()->name(), "byte");
}

TEST_F(TokenizerFiles, OfGpt2) {
  write("encoder.json", R"({"a":0,"b":1,"ab":2,"Ġ":3,"Ġa":4,"<|endoftext|>":5})");
  EXPECT_THROW(open(), UsageError) << "without vocab.bpe";
  write("vocab.bpe", "#version: 0.2\na b\nĠ a\n");
  EXPECT_EQ(open()->encode("ab aab<|endoftext|>", {.parse_special = true}), (Ids{2, 4, 2, 5}));
  EXPECT_EQ(open("vocab.bpe")->end_of_document(), 5);
}

TEST_F(TokenizerFiles, NamedLikeGpt2sNeedAWord) {
  write("vocab.json", R"({"a":0})");
  write("merges.txt", "#version: 0.2\n");
  EXPECT_THROW(open(), UsageError);
  write("tokenizer_config.json", R"({"tokenizer_class":"Qwen2Tokenizer"})");
  EXPECT_THROW(open(), UsageError);
  write("tokenizer_config.json", R"({"tokenizer_class":"GPT2Tokenizer"})");
  EXPECT_EQ(open()->encode("aa"), (Ids{0, 0}));
}

TEST_F(TokenizerFiles, OfSentencePiece) {
  write("tokenizer.model", serialize(small_model(SentencePieceModel::Kind::bpe)));
  EXPECT_EQ(open()->encode("ab a", {.add_special = true}), (Ids{1, 6, 5, 6})) << "an unused piece is taken apart";
  EXPECT_EQ(open()->encode("a<s>a", {.parse_special = true}), (Ids{6, 1, 6}));
  EXPECT_EQ(open()->encode("axyb"), (Ids{6, 0, 5})) << "a run of unknown characters is one token";
  EXPECT_EQ(open()->decode(open()->encode("ab a")), "ab a");
  write("tokenizer_config.json", R"({"add_bos_token":false,"add_eos_token":true,"added_tokens_decoder":{)"
                                 R"("1":{"content":"<s>","special":true},"9":{"content":"<new>","special":false}}})");
  EXPECT_EQ(open()->encode("a<new>", {.add_special = true}), (Ids{6, 9, 2}));
  EXPECT_EQ(open()->vocab_size(), 10);
}

TEST_F(TokenizerFiles, OfUnigramSentencePiece) {
  write("spiece.model", serialize(small_model(SentencePieceModel::Kind::unigram)));
  EXPECT_EQ(open()->encode("ab a", {.add_special = true}), (Ids{3, 7, 3, 4, 2}));
}

TEST_F(TokenizerFiles, OfTiktoken) {
  write("gpt2.tiktoken", small_tiktoken());
  EXPECT_EQ(open()->encode("the the th"), (Ids{257, 258, 32, 256}));
  EXPECT_EQ(open()->encode("é\xFF"), (Ids{0xC3, 0xA9, 0xFF}));
  EXPECT_EQ(open()->decode(Ids{258, 0xFF}), " the\xFF");
  EXPECT_EQ(open()->end_of_document(), 50256);
  EXPECT_EQ(parse_tokenizer(open()->to_json(), "checkpoint")->encode(" the"), (Ids{258}));
  write("mine.tiktoken", small_tiktoken());
  EXPECT_THROW(open("mine.tiktoken"), UsageError);
  write("llama3.tiktoken", small_tiktoken());
  EXPECT_EQ(open("llama3.tiktoken")->encode("the<|eot_id|>", {.add_special = true, .parse_special = true}),
            (Ids{259, 257, 259 + 9}));
  EXPECT_EQ(open("llama3.tiktoken")->vocab_size(), 259 + 256);
}

TEST_F(TokenizerFiles, ThatAreDamagedAreNamed) {
  const std::string model = serialize(small_model(SentencePieceModel::Kind::bpe));
  auto with = [](auto change) {
    SentencePieceModel changed = small_model(SentencePieceModel::Kind::bpe);
    change(changed);
    return serialize(changed);
  };
  const std::pair<std::string, std::string> files[] = {
      {"empty.model", ""},
      {"text.model", "This is a text."},
      {"cut.model", model.substr(0, model.size() - 3)},
      {"word.model", with([](auto& m) { m.kind = SentencePieceModel::Kind::word; })},
      {"type.model", with([](auto& m) { m.pieces[3].type = SentencePieceModel::Type(9); })},
      {"kind.model", with([](auto& m) { m.kind = SentencePieceModel::Kind(9); })},
      {"score.model", with([](auto& m) { m.pieces[3].score = NAN; })},
      {"twice.model", with([](auto& m) { m.pieces[4].text = "b"; })},
      {"nothing.model", with([](auto& m) { m.pieces[4].text = ""; })},
      {"bytes.model", with([](auto& m) { m.pieces[4].text = "\xFF"; })},
      {"map.model", with([](auto& m) { m.character_map = "abc"; })},
      {"gpt2.tiktoken", "YQ== 0\n"},
      {"r50k_base.tiktoken", small_tiktoken() + "YQ== 300\n"},
      {"p50k_base.tiktoken", small_tiktoken() + "YQ=! 300\n"},
      {"qwen.tiktoken", small_tiktoken() + "YWI= 5\n"},
      {"cl100k_base.tiktoken", small_tiktoken() + "YWI= 100257\n"},
      {"o200k_base.tiktoken", small_tiktoken() + "YWI= -1\n"},
  };
  for (const auto& [name, content] : files) {
    write(name, content);
    try {
      open(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(open("missing.json"), Error);
  std::filesystem::create_directories(folder_ / "sub");
  EXPECT_THROW(open("sub"), UsageError);
  EXPECT_FALSE(holds_tokenizer(FileSystem::real(), folder_ / "sub"));
}

// Any byte of a model may be wrong: it is refused, or a tokenizer that works.
TEST(SentencePieceModel, SurvivesEveryChangedByte) {
  const std::string model = serialize(small_model(SentencePieceModel::Kind::bpe));
  int refused = 0;
  for (size_t at = 0; at < model.size(); ++at) {
    for (const uint8_t flip : {0x01, 0x80, 0xFF}) {
      std::string changed = model;
      changed[at] = char(uint8_t(changed[at]) ^ flip);
      try {
        const SentencePieceModel parsed = parse_sentencepiece_model(changed, "m");
        make_sentencepiece_tokenizer(parsed, usual_use(parsed), "m")->encode("ab a\xFFé");
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(SentencePieceModel, IsReadBackAsWritten) {
  SentencePieceModel model = small_model(SentencePieceModel::Kind::unigram);
  model.byte_fallback = true, model.unknown = 0, model.begin = -1, model.end = 2, model.unknown_text = "?";
  model.normalizing = {false, false, false, true};
  const SentencePieceModel read = parse_sentencepiece_model(serialize(model), "m");
  EXPECT_EQ(serialize(read), serialize(model));
  EXPECT_EQ(read.begin, -1);
  EXPECT_EQ(read.unknown_text, "?");
  EXPECT_TRUE(read.normalizing.treat_whitespace_as_suffix);
  EXPECT_FALSE(read.normalizing.add_dummy_prefix);
}

TEST(Base64, GoesBothWays) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(bytes_of_base64(base64_of(bytes)), bytes);
    bytes += char(uint8_t(i * 37));
  }
  EXPECT_EQ(base64_of("weft!"), "d2VmdCE=");
  for (const char* bad : {"a", "ab=c", "a===", "ab*=", "====", "YR==", "YWJ=", "YQ==YQ=="})
    EXPECT_EQ(bytes_of_base64(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace weft
