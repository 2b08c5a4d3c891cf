// Tokenizers: text survives the round trip, what cannot be encoded is named, streams hold back half characters.
#include "weft/text/tokenizer.h"

#include <gtest/gtest.h>

#include "weft/text/byte_tokenizer.h"
#include "weft/text/char_tokenizer.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

const char* const kTexts[] = {"",
                              "plain text\n",
                              "naïve café",
                              "日本語のテキスト",
                              "emoji 🎉👩‍👩‍👧 and \t tabs\r\n",
                              "\xCE\xB1\xCE\xB2 \xF4\x8F\xBF\xBF"};

std::unique_ptr<Tokenizer> make(std::string_view type, std::string_view text) {
  if (type == "byte") return std::make_unique<ByteTokenizer>();
  CodePointSet characters;
  characters.add(text);
  characters.add("x");
  return std::make_unique<CharTokenizer>(characters.sorted(), type == "char+eod");
}

class RoundTrip : public testing::TestWithParam<std::tuple<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(All, RoundTrip,
                         testing::Combine(testing::Values("byte", "char", "char+eod"), testing::ValuesIn(kTexts)));

TEST_P(RoundTrip, KeepsTheText) {
  const auto [type, text] = GetParam();
  const auto tokenizer = make(type, text);
  const std::vector<int32_t> ids = tokenizer->encode(text);
  EXPECT_EQ(tokenizer->decode(ids), text);
  for (const int32_t id : ids) EXPECT_LT(id, tokenizer->vocab_size());
}

TEST_P(RoundTrip, SurvivesJson) {
  const auto [type, text] = GetParam();
  const auto tokenizer = make(type, text), copy = parse_tokenizer(tokenizer->to_json(), "checkpoint");
  EXPECT_EQ(copy->to_json(), tokenizer->to_json());
  EXPECT_EQ(copy->fingerprint(), tokenizer->fingerprint());
  EXPECT_EQ(copy->vocab_size(), tokenizer->vocab_size());
  EXPECT_EQ(copy->end_of_document(), tokenizer->end_of_document());
  EXPECT_EQ(copy->encode(text), tokenizer->encode(text));
}

TEST_P(RoundTrip, StreamsWholeCharacters) {
  const auto [type, text] = GetParam();
  const auto tokenizer = make(type, text);
  StreamDecoder stream(*tokenizer);
  std::string all;
  for (const int32_t id : tokenizer->encode(text)) {
    const std::string piece = stream.push(id);
    EXPECT_EQ(whole_utf8_prefix(piece), piece.size());
    all += piece;
  }
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(all, text);
}

// However a text is cut into pieces where cut() says, the ids are those of the whole.
TEST_P(RoundTrip, CutsWherePiecesEncodeAlike) {
  const auto [type, text] = GetParam();
  const auto tokenizer = make(type, text);
  for (size_t step = 1; step < 8; ++step) {
    std::vector<int32_t> ids;
    std::string held;
    const std::string_view all = text;
    for (size_t at = 0; at < all.size(); at += step) {
      held += all.substr(at, step);
      const size_t length = tokenizer->cut(held);
      tokenizer->encode(held.substr(0, length), {}, ids);
      held.erase(0, length);
    }
    EXPECT_EQ(held, "");
    EXPECT_EQ(ids, tokenizer->encode(text));
  }
}

TEST(ByteTokenizer, EncodesEveryByte) {
  std::string text;
  for (int i = 0; i < 256; ++i) text.push_back(char(i));
  const ByteTokenizer tokenizer;
  const std::vector<int32_t> ids = tokenizer.encode(text);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[size_t(i)], i);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  EXPECT_EQ(tokenizer.end_of_document(), 256);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{65, 256, 66}), "AB");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{257}), "") << "a row of the model that is no token";
  EXPECT_THROW(tokenizer.decode(std::vector<int32_t>{-1}), Error);
}

TEST(CharTokenizer, NumbersCodePointsInOrder) {
  CodePointSet characters;
  characters.add("baé");
  characters.add("a\n");
  const CharTokenizer tokenizer(characters.sorted(), true);
  EXPECT_EQ(tokenizer.encode("\nabé"), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(tokenizer.end_of_document(), 4);
  EXPECT_EQ(tokenizer.vocab_size(), 5);
}

TEST(CharTokenizer, NamesWhatItCannotEncode) {
  CodePointSet characters;
  characters.add("ab");
  const CharTokenizer tokenizer(characters.sorted(), false);
  std::vector<int32_t> ids{7};
  const struct {
    std::string text, what;
    size_t offset;
  } cases[] = {{"abé", "U+00E9 'é'", 2}, {"\n", "U+000A ", 0}, {"ab\xFF", "0xFF", 2}, {"a\xE2\x82", "0xE2", 1}};
  for (const auto& [text, what, offset] : cases) {
    try {
      tokenizer.encode(text, {}, ids);
      ADD_FAILURE() << text;
    } catch (const EncodeError& error) {
      EXPECT_EQ(error.offset(), offset);
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("byte " + std::to_string(offset)), std::string::npos) << error.what();
    }
    EXPECT_EQ(ids, std::vector<int32_t>{7});
  }
}

TEST(StreamDecoder, ReplacesWhatIsNotText) {
  const ByteTokenizer tokenizer;
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.push('a'),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(stream.push(256), "");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.finish(), "");
}

class BadJson : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    All, BadJson,
    testing::Values("", "[]", "{}", R"({"type":3})", R"({"type":"bpe","version":1})",
                    R"({"type":"byte","version":2})",
                    R"({"type":"char","version":1,"end_of_document":false,"code_points":[]})",
                    R"({"type":"char","version":1,"end_of_document":false,"code_points":[5,5]})",
                    R"({"type":"char","version":1,"end_of_document":false,"code_points":[6,5]})",
                    R"({"type":"char","version":1,"end_of_document":false,"code_points":[1114112]})",
                    R"({"type":"char","version":1,"code_points":[5]})"));
TEST_P(BadJson, IsAnErrorThatNamesTheFile) {
  try {
    parse_tokenizer(GetParam(), "model/tokenizer.json");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("model/tokenizer.json"), std::string::npos) << error.what();
  }
}

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, text);
    const Utf8CodePoint read = read_utf8(text);
    ASSERT_TRUE(read.state == Utf8State::complete && read.value == c && read.length == text.size()) << uint32_t(c);
    for (size_t length = 1; length < text.size(); ++length)
      ASSERT_TRUE(read_utf8(text.substr(0, length)).state == Utf8State::incomplete);
  }
}

TEST(Utf8, RefusesWhatTheStandardForbids) {
  for (const char* text : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                           "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3(", "\xE2\x82("})
    EXPECT_EQ(read_utf8(text).state, Utf8State::invalid) << text;
}

}  // namespace
}  // namespace weft
