// Pre-tokenizers: each against what Hugging Face's library makes of the same text, and where texts may be divided.
#include "weft/text/pipeline/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "weft/text/pipeline/known_patterns.h"
#include "weft/text/unicode.h"
#include "weft/text/utf8.h"

namespace weft {
namespace {

std::vector<std::string> cut(const PreTokenizer& pre_tokenizer, const std::string& text, TextPlace place = {}) {
  Pieces pieces{text, {}, place};
  if (!text.empty()) pieces.spans.push_back({0, uint32_t(text.size())});
  pre_tokenizer.apply(pieces);
  std::vector<std::string> out;
  for (size_t i = 0; i < pieces.spans.size(); ++i) out.emplace_back(pieces[i]);
  return out;
}

struct PreTokenizerCase {
  const char* name;
  std::function<std::unique_ptr<PreTokenizer>()> make;
  const char* text;
  std::vector<std::string> pieces;
};

std::unique_ptr<PreTokenizer> at_hyphens(SplitBehavior behavior, bool invert) {
  return split_pre_tokenizer(std::string("-"), behavior, invert);
}
const char* const kHyphens = "-the--final-countdown-";

class PreTokenizers : public testing::TestWithParam<PreTokenizerCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, PreTokenizers,
    testing::Values(
        PreTokenizerCase{"Removed",
                         [] { return at_hyphens(SplitBehavior::removed, false); },
                         kHyphens,
                         {"the", "final", "countdown"}},
        PreTokenizerCase{"RemovedInverted",
                         [] { return at_hyphens(SplitBehavior::removed, true); },
                         kHyphens,
                         {"-", "-", "-", "-", "-"}},
        PreTokenizerCase{"Isolated",
                         [] { return at_hyphens(SplitBehavior::isolated, false); },
                         kHyphens,
                         {"-", "the", "-", "-", "final", "-", "countdown", "-"}},
        PreTokenizerCase{"MergedWithPrevious",
                         [] { return at_hyphens(SplitBehavior::merged_with_previous, false); },
                         kHyphens,
                         {"-", "the-", "-", "final-", "countdown-"}},
        PreTokenizerCase{"MergedWithPreviousInverted",
                         [] { return at_hyphens(SplitBehavior::merged_with_previous, true); },
                         kHyphens,
                         {"-the", "-", "-final", "-countdown", "-"}},
        PreTokenizerCase{"MergedWithNext",
                         [] { return at_hyphens(SplitBehavior::merged_with_next, false); },
                         kHyphens,
                         {"-the", "-", "-final", "-countdown", "-"}},
        PreTokenizerCase{"MergedWithNextInverted",
                         [] { return at_hyphens(SplitBehavior::merged_with_next, true); },
                         kHyphens,
                         {"-", "the-", "-", "final-", "countdown-"}},
        PreTokenizerCase{"Contiguous",
                         [] { return at_hyphens(SplitBehavior::contiguous, false); },
                         kHyphens,
                         {"-", "the", "--", "final", "-", "countdown", "-"}},
        PreTokenizerCase{"EmptyMatches",
                         [] { return split_pre_tokenizer(Regex("(?=b)", "test"), SplitBehavior::isolated, false); },
                         "abcb",
                         {"a", "bc", "b"}},
        PreTokenizerCase{"ByteLevel",
                         [] { return byte_level_pre_tokenizer(false, true); },
                         "I'm a  b\u00E9\n\n ",
                         {"I", "'m", "Ġa", "Ġ", "ĠbÃ©", "ĊĊĠ"}},
        PreTokenizerCase{
            "ByteLevelWithSpace", [] { return byte_level_pre_tokenizer(true, true); }, "ab c", {"Ġab", "Ġc"}},
        PreTokenizerCase{
            "ByteLevelAlone", [] { return byte_level_pre_tokenizer(false, false); }, "a b\xFF", {"aĠbÿ"}},
        PreTokenizerCase{"Metaspace",
                         [] { return metaspace_pre_tokenizer("▁", PrependScheme::always, true); },
                         " a  b ",
                         {"▁a", "▁", "▁b", "▁"}},
        PreTokenizerCase{"MetaspaceWhole",
                         [] { return metaspace_pre_tokenizer("▁", PrependScheme::first, false); },
                         "a  b ",
                         {"▁a▁▁b▁"}},
        PreTokenizerCase{"MetaspaceNever",
                         [] { return metaspace_pre_tokenizer("▁", PrependScheme::never, true); },
                         "a b",
                         {"a", "▁b"}},
        PreTokenizerCase{"Whitespace",
                         whitespace_pre_tokenizer,
                         "a$b\u2014c\u00A3d\u3000e\u200Df\u20DD\u00B2\u2160\u24B6",
                         {"a", "$", "b", "\u2014", "c", "\u00A3", "d", "e\u200Df\u20DD", "\u00B2", "\u2160\u24B6"}},
        PreTokenizerCase{"WhitespaceSplit",
                         whitespace_split_pre_tokenizer,
                         "a\u0085b\u180Ec\u200Bd\x1C"
                         "e",
                         {"a",
                          "b\u180Ec\u200Bd\x1C"
                          "e"}},
        PreTokenizerCase{"Bert",
                         bert_pre_tokenizer,
                         "a$b\u2014c\u00A3d\u3000e\u0085f`g\u200Bh",
                         {"a", "$", "b", "\u2014", "c\u00A3d", "e", "f", "`", "g\u200Bh"}},
        PreTokenizerCase{"Digits",
                         [] { return digits_pre_tokenizer(true); },
                         "12\u00B2\u2160\u0663a\u4E00",
                         {"1", "2", "\u00B2", "\u2160", "\u0663", "a\u4E00"}},
        PreTokenizerCase{
            "DigitsTogether", [] { return digits_pre_tokenizer(false); }, "a12b3", {"a", "12", "b", "3"}},
        PreTokenizerCase{"Punctuation",
                         [] { return punctuation_pre_tokenizer(SplitBehavior::isolated); },
                         "a,.b",
                         {"a", ",", ".", "b"}},
        PreTokenizerCase{
            "Delimiter", [] { return delimiter_pre_tokenizer(U'\u2014'); }, "a\u2014\u2014b", {"a", "b"}},
        PreTokenizerCase{"WordStarts", [] { return word_start_pre_tokenizer("▁"); }, "▁▁ab▁c▁", {"▁▁ab", "▁c", "▁"}}),
    [](const auto& test) { return test.param.name; });
TEST_P(PreTokenizers, GiveThese) { EXPECT_EQ(cut(*GetParam().make(), GetParam().text), GetParam().pieces); }

// What `divides` claims, on random text of characters that patterns care about.
class KnownPatterns : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, KnownPatterns, testing::Range(0, int(known_patterns().size())));
TEST_P(KnownPatterns, DivideWhereTheySay) {
  const KnownPattern& known = known_patterns()[size_t(GetParam())];
  const auto pre_tokenizer = split_pre_tokenizer(Regex(known.pattern, "test"), SplitBehavior::isolated, false);
  EXPECT_EQ(pre_tokenizer->divides().before_space, known.divides.before_space);
  const std::vector<std::string> alphabet = {" ", " ",      "\n",     "\n", "\r",     "\t", "a", "B",
                                             "s", "'",      "1",      "2",  ".",      "/",  "$", "中",
                                             "é", "\u0301", "\u3000", "Ⅷ",  "\u0085", "😶"};
  std::mt19937 random(7);
  int places = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 24; ++i) text += alphabet[random() % alphabet.size()];
    const std::vector<std::string> whole = cut(*pre_tokenizer, text);
    for (size_t at = 1; at + 1 < text.size(); ++at) {
      const auto last = [&](size_t end) {
        size_t begin = end - 1;
        while (begin > 0 && (uint8_t(text[begin]) & 0xC0) == 0x80) --begin;
        return first_code_point(std::string_view(text).substr(begin)).value;
      };
      const char32_t next = first_code_point(std::string_view(text).substr(at)).value;
      const bool is_space = text[at] == ' ' && !is_white_space(last(at));
      const bool is_line = at > 1 && text[at - 1] == '\n' && !is_white_space(last(at - 1)) &&
                           (is_word(next) || is_number(next)) && !is_mark(next) && !is_punctuation(next);
      if (!is_space && !is_line) continue;
      ++places;
      std::vector<std::string> parts = cut(*pre_tokenizer, text.substr(0, at));
      const std::vector<std::string> rest = cut(*pre_tokenizer, text.substr(at));
      const bool cuts = is_space ? known.divides.before_space : known.divides.behind_newline;
      if (!cuts && !parts.empty() && !rest.empty()) {
        // No boundary is promised here, only that nothing changes around it.
        std::vector<std::string> joined = parts;
        joined.back() += rest.front();
        joined.insert(joined.end(), rest.begin() + 1, rest.end());
        parts.insert(parts.end(), rest.begin(), rest.end());
        EXPECT_TRUE(whole == parts || whole == joined) << known.pattern << '\n' << text << "\nat " << at;
        continue;
      }
      parts.insert(parts.end(), rest.begin(), rest.end());
      EXPECT_EQ(whole, parts) << known.pattern << '\n' << text << "\nat " << at;
    }
  }
  EXPECT_GT(places, 1000);
}

}  // namespace
}  // namespace weft
