// Normalizers: each against what Hugging Face's library makes of the same text.
#include "weft/text/pipeline/normalizer.h"

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/text/pipeline/character_map.h"
#include "weft/text/pipeline/sentencepiece_normalizer.h"

namespace weft {
namespace {

struct Case {
  const char* name;
  std::function<std::unique_ptr<Normalizer>()> make;
  const char *text, *expected;
  const char* continued = nullptr;  // when the text goes on from an earlier one, if that differs
};

std::unique_ptr<Normalizer> sentencepiece(SentencePieceNormalizing options) {
  return std::make_unique<SentencePieceNormalizer>(options, CharacterMap(), std::vector<std::string>{"[x y]"});
}

class Normalizers : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    All, Normalizers,
    testing::Values(
        Case{"Nfc", [] { return unicode_normalizer(NormalForm::nfc); }, "e\u0301 \u212B \uFB01",
             "\u00E9 \u00C5 \uFB01"},
        Case{"Nfd", [] { return unicode_normalizer(NormalForm::nfd); }, "\u00E9 \u1ED9", "e\u0301 o\u0323\u0302"},
        Case{"Nfkc", [] { return unicode_normalizer(NormalForm::nfkc); }, "\uFB01 \u2460 e\u0301", "fi 1 \u00E9"},
        Case{"Nfkd", [] { return unicode_normalizer(NormalForm::nfkd); }, "\uFB01 \u00E9", "fi e\u0301"},
        Case{"Lowercase", lowercase_normalizer, "\u0130\u03A3A\u03A3 \u1E9E\u01C5",
             "i\u0307\u03C3a\u03C3 \u00DF\u01C6"},
        Case{"StripAccents", strip_accents_normalizer, "a\u0903b\u0301c\u20DDd\u00E9", "abcd\u00E9"},
        Case{"Strip", [] { return strip_normalizer(true, true); }, " \u0085\u200B a \x1C\n", "\u200B a \x1C",
             " \u0085\u200B a \x1C"},
        Case{"StripOfSpace", [] { return strip_normalizer(true, true); }, "  ", ""},
        Case{"StripLeft", [] { return strip_normalizer(true, false); }, " a ", "a ", " a "},
        Case{"StripRight", [] { return strip_normalizer(false, true); }, " a ", " a"},
        Case{"Prepend", [] { return prepend_normalizer("_"); }, "a", "_a", "a"},
        Case{"PrependToNothing", [] { return prepend_normalizer("_"); }, "", ""},
        Case{"Replace", [] { return replace_normalizer(std::string("aa"), "b"); }, "aaaxa", "baxa"},
        Case{"ReplaceRegex", [] { return replace_normalizer(Regex(" {2,}", "test"), "_"); }, "a  b c   ", "a_b c_"},
        Case{"ReplaceEmptyMatches", [] { return replace_normalizer(Regex("x*", "test"), "-"); }, "abxc", "-a-b-c-"},
        Case{"Bert", [] { return bert_normalizer({}); },
             "A\u0378B\uE000C\u200DD\u00ADE\uFFFD"
             "F\x01H\x7FI\u0085J\u2028K\u0903L\u0301M\u20DDN\u4E2DO\u3000P\u0130Q\u03A3",
             "a\u0378bcdefhij k\u0903lm\u20DDn \u4E2D o piq\u03C3"},
        Case{"BertOfCase", [] { return bert_normalizer({.strip_accents = false, .lowercase = false}); }, "\u00C9\tA",
             "\u00C9 A"},
        Case{"BertKeeps",
             [] {
               return bert_normalizer({false, false, false, false});
             },
             "A\x01\u4E2D\tE\u0301", "A\x01\u4E2D\tE\u0301"},
        Case{"Pieces", [] { return sentencepiece({}); }, "  a  b ", "▁a▁b", "▁a▁b"},
        Case{"PiecesOfSpace", [] { return sentencepiece({}); }, "   ", "", ""},
        Case{"PiecesWithAllSpaces", [] { return sentencepiece({.remove_extra_whitespaces = false}); }, " a  ",
             "▁▁a▁▁", "▁a▁▁"},
        Case{"PiecesWithoutPrefix", [] { return sentencepiece({.add_dummy_prefix = false}); }, "a b", "a▁b"},
        Case{"PiecesWithSuffix", [] { return sentencepiece({.treat_whitespace_as_suffix = true}); }, "a b", "a▁b▁",
             "a▁b"},
        Case{"PiecesUnescaped", [] { return sentencepiece({.escape_whitespaces = false}); }, " a  b", " a b", " a b"},
        Case{"PiecesUntouched", [] { return sentencepiece({}); }, "[x y] [x  y]", "▁[x▁y]▁[x▁y]", "[x▁y]▁[x▁y]"},
        Case{"PiecesOfBadBytes", [] { return sentencepiece({}); },
             "a\xE2\x82"
             "b\xFF",
             "▁a\uFFFD\uFFFDb\uFFFD", "a\uFFFD\uFFFDb\uFFFD"}),
    [](const auto& test) { return test.param.name; });
TEST_P(Normalizers, GiveThis) {
  std::string text = GetParam().text;
  GetParam().make()->apply(text, {});
  EXPECT_EQ(text, GetParam().expected);
  text = GetParam().text;
  GetParam().make()->apply(text, {.at_start = false, .continues = true});
  EXPECT_EQ(text, GetParam().continued ? GetParam().continued : GetParam().expected);
}

// Every unit of a table leads anywhere: nothing outside is read.
TEST(CharacterMap, SurvivesDamage) {
  uint32_t state = 1;
  const auto next = [&] { return state = state * 1664525u + 1013904223u; };
  for (int round = 0; round < 2000; ++round) {
    const uint32_t units = 1 + next() % 64;
    std::string blob(4 + 4 * units + next() % 32, '\0');
    for (char& byte : blob) byte = char(next() >> 24 & 0x7F);
    const uint32_t size = 4 * units;
    std::memcpy(blob.data(), &size, 4);
    const CharacterMap map(blob, "test");
    for (int i = 0; i < 20; ++i) {
      std::string text(8, '\0');
      for (char& byte : text) byte = char(next() >> 24);
      EXPECT_LE(map.longest(text).length, text.size());
      EXPECT_LE(map.shortest(text).length, map.longest(text).length);
    }
  }
}

TEST(CharacterMap, IsRefusedWhenItCannotBeOne) {
  for (const std::string& blob :
       {std::string("abc"), std::string("\x08\0\0\0abcd", 8), std::string("\x03\0\0\0abcd", 8),
        std::string("\0\0\0\0abcd", 8), std::string("\x04\0\0\0abcd\xFF", 9)})
    EXPECT_THROW(CharacterMap(blob, "test"), Error);
  EXPECT_TRUE(CharacterMap("", "test").empty());
}

}  // namespace
}  // namespace weft
