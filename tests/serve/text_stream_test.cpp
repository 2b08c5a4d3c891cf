// Text as it comes: whole characters, stop strings wherever tokens part them, and the bytes of single tokens.
#include "weft/serve/text_stream.h"

#include "weft/serve/stop_finder.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

const ByteTokenizer kBytes;

// What a stream of single bytes gives, piece by piece.
std::vector<std::string> pieces(const std::string& text, StopOptions options) {
  TextStream stream(kBytes, {});
  StopFinder stops(std::move(options));
  std::vector<std::string> out;
  for (const char c : text) out.push_back(stops.push(stream.push(uint8_t(c))));
  out.push_back(stops.push(stream.finish()) + stops.finish());
  return out;
}
std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

struct StopCase {
  const char* name;
  std::string text;
  std::vector<std::string> stop;
  std::string want;
  bool is_stopped;
};
class StopStrings : public testing::TestWithParam<StopCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, StopStrings,
                         testing::Values(StopCase{"None", "abc", {}, "abc", false},
                                         StopCase{"Middle", "abcdef", {"cd"}, "ab", true},
                                         StopCase{"Start", "abc", {"a"}, "", true},
                                         StopCase{"PrefixOnly", "abcx", {"cde"}, "abcx", false},
                                         StopCase{"PrefixAtTheEnd", "abcd", {"cde"}, "abcd", false},
                                         StopCase{"OverlapsItself", "aaaab", {"aab"}, "aa", true},
                                         StopCase{"EarliestCounts", "one two three", {"three", "two"}, "one ", true},
                                         StopCase{"Newlines", "a\n\nb", {"\n\n"}, "a", true},
                                         StopCase{"BeyondAscii", "caf\xC3\xA9 au lait", {"\xC3\xA9 au"}, "caf", true},
                                         StopCase{"EmptyIsNone", "abc", {""}, "abc", false}),
                         [](const auto& test) { return test.param.name; });

TEST_P(StopStrings, EndTheTextBeforeThem) {
  const StopCase& c = GetParam();
  EXPECT_EQ(joined(pieces(c.text, {.texts = c.stop})), c.want);
  StopFinder stops({.texts = c.stop});
  stops.push(c.text);
  EXPECT_EQ(stops.is_stopped(), c.is_stopped);
  if (c.is_stopped) EXPECT_EQ(stops.push("x") + stops.finish(), "") << "nothing comes after the end";
}

TEST(TextStreamTest, IncludesTheStopWhenAsked) {
  EXPECT_EQ(joined(pieces("abcdef", {.texts = {"cd"}, .is_included = true})), "abcd");
}

TEST(TextStreamTest, TellsTextAsSoonAsItIsCertain) {
  const std::vector<std::string> got = pieces("ab", {.texts = {"xyz"}});
  EXPECT_EQ(got, (std::vector<std::string>{"a", "b", ""}));
  EXPECT_EQ(pieces("axyb", {.texts = {"xyz"}}), (std::vector<std::string>{"a", "", "", "xyb", ""}));
}

TEST(TextStreamTest, NeverBreaksACharacter) {
  const std::string text = "\xE2\x82\xAC \xF0\x9F\x98\x80 \xFF \xE2\x82";  // the last ones are not UTF-8
  for (const std::string& piece : pieces(text, {.texts = {"stop"}}))
    EXPECT_EQ(valid_utf8_prefix(piece), piece.size()) << piece;
  EXPECT_EQ(joined(pieces(text, {})), replace_invalid_utf8(text));
}

TEST(TextStreamTest, ControlTokensShowOnlyWhenKept) {
  const int32_t end = ByteTokenizer::kEndOfDocument;
  TextStream plain(kBytes, {}), kept(kBytes, {.kept_special = {end}});
  EXPECT_EQ(plain.push('a') + plain.push(end) + plain.push('b'), "ab");
  EXPECT_EQ(kept.push('a') + kept.push(end) + kept.push('b'), "a" + kBytes.spelling(end) + "b");
}

TEST(TokenSpellerTest, GivesTheBytesOfATokenEvenOfHalfACharacter) {
  TokenSpeller speller(kBytes, {});
  EXPECT_EQ(speller.spell(0xE2), "\xE2");
  speller.advance(0xE2);
  EXPECT_EQ(speller.spell('x'), "x");
}

}  // namespace
}  // namespace weft
