// Normalizers: each against what Hugging Face's library makes of the same text.
#include "weft/text/pipeline/normalizer.h"

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/text/pipeline/character_map.h"
#include "weft/text/pipeline/sentencepiece_normalizer.h"

namespace weft {
namespace {

struct NormalizerCase {
  const char* name;
  std::function<std::unique_ptr<Normalizer>()> make;
  const char *text, *expected;
  const char* continued = nullptr;  // when the text goes on from an earlier one, if that differs
};

std::unique_ptr<Normalizer> sentencepiece(SentencePieceNormalizing options) {
  return std::make_unique<SentencePieceNormalizer>(options, CharacterMap(), std::vector<std::string>{"[x y]"});
}

class Normalizers : public testing::TestWithParam<NormalizerCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, Normalizers,
    testing::Values(
        NormalizerCase{"Nfc", [] { return unicode_normalizer(NormalForm::nfc); }, "e\u0301 \u212B \uFB01",
                       "\u00E9 \u00C5 \uFB01"},
        NormalizerCase{"Nfd", [] { return unicode_normalizer(NormalForm::nfd); }, "\u00E9 \u1ED9",
                       "e\u0301 o\u0323\u0302"},
        NormalizerCase{"Nfkc", [] { return unicode_normalizer(NormalForm::nfkc); }, "\uFB01 \u2460 e\u0301",
                       "fi 1 \u00E9"},
        NormalizerCase{"Nfkd", [] { return unicode_normalizer(NormalForm::nfkd); }, "\uFB01 \u00E9", "fi e\u0301"},
        NormalizerCase{"Lowercase", lowercase_normalizer, "\u0130\u03A3A\u03A3 \u1E9E\u01C5",
                       "i\u0307\u03C3a\u03C3 \u00DF\u01C6"},
        NormalizerCase{"StripAccents", strip_accents_normalizer, "a\u0903b\u0301c\u20DDd\u00E9", "abcd\u00E9"},
        NormalizerCase{"Strip", [] { return strip_normalizer(true, true); }, " \u0085\u200B a \x1C\n",
                       "\u200B a \x1C", " \u0085\u200B a \x1C"},
        NormalizerCase{"StripOfSpace", [] { return strip_normalizer(true, true); }, "  ", ""},
        NormalizerCase{"StripLeft", [] { return strip_normalizer(true, false); }, " a ", "a ", " a "},
        NormalizerCase{"StripRight", [] { return strip_normalizer(false, true); }, " a ", " a"},
        NormalizerCase{"Prepend", [] { return prepend_normalizer("_"); }, "a", "_a", "a"},
        NormalizerCase{"PrependToNothing", [] { return prepend_normalizer("_"); }, "", ""},
        NormalizerCase{"Replace", [] { return replace_normalizer(std::string("aa"), "b"); }, "aaaxa", "baxa"},
        NormalizerCase{"ReplaceRegex", [] { return replace_normalizer(Regex(" {2,}", "test"), "_"); }, "a  b c   ",
                       "a_b c_"},
        NormalizerCase{"ReplaceEmptyMatches", [] { return replace_normalizer(Regex("x*", "test"), "-"); }, "abxc",
                       "-a-b-c-"},
        NormalizerCase{"Bert", [] { return bert_normalizer({}); },
                       "A\u0378B\uE000C\u200DD\u00ADE\uFFFD"
                       "F\x01H\x7FI\u0085J\u2028K\u0903L\u0301M\u20DDN\u4E2DO\u3000P\u0130Q\u03A3",
                       "a\u0378bcdefhij k\u0903lm\u20DDn \u4E2D o piq\u03C3"},
        NormalizerCase{"BertOfCase", [] { return bert_normalizer({.strip_accents = false, .lowercase = false}); },
                       "\u00C9\tA", "\u00C9 A"},
        NormalizerCase{"BertKeeps",
                       [] {
                         return bert_normalizer({false, false, false, false});
                       },
                       "A\x01\u4E2D\tE\u0301", "A\x01\u4E2D\tE\u0301"},
        NormalizerCase{"Pieces", [] { return sentencepiece({}); }, "  a  b ", "▁a▁b", "▁a▁b"},
        NormalizerCase{"PiecesOfSpace", [] { return sentencepiece({}); }, "   ", "", ""},
        NormalizerCase{"PiecesWithAllSpaces", [] { return sentencepiece({.remove_extra_whitespaces = false}); },
                       " a  ", "▁▁a▁▁", "▁a▁▁"},
        NormalizerCase{"PiecesWithoutPrefix", [] { return sentencepiece({.add_dummy_prefix = false}); }, "a b",
                       "a▁b"},
        NormalizerCase{"PiecesWithSuffix", [] { return sentencepiece({.treat_whitespace_as_suffix = true}); }, "a b",
                       "a▁b▁", "a▁b"},
        NormalizerCase{"PiecesUnescaped", [] { return sentencepiece({.escape_whitespaces = false}); }, " a  b",
                       " a b", " a b"},
        NormalizerCase{"PiecesUntouched", [] { return sentencepiece({}); }, "[x y] [x  y]", "▁[x▁y]▁[x▁y]",
                       "[x▁y]▁[x▁y]"},
        NormalizerCase{"PiecesOfBadBytes", [] { return sentencepiece({}); },
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
