// Regex: Oniguruma's meaning on PCRE2, matches as Hugging Face's library finds them, and refusals.
#include "weft/text/regex.h"

#include <gtest/gtest.h>

#include "weft/base/error.h"

namespace weft {
namespace {

struct RegexCase {
  const char *name, *pattern, *text;
  std::vector<std::string> matches;  // '^' stands for an empty one
};

class RegexMatches : public testing::TestWithParam<RegexCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, RegexMatches,
    testing::Values(
        RegexCase{"SpaceAtLineEnds", R"(\s+$)", "a  \nb  ", {"  ", "  "}},
        RegexCase{"LineBegins", "^b", "ab\nbb", {"b"}},
        RegexCase{"Words", R"(\w+)", "a\u0301b_\u203F1\u00B2\u2160\u200D\u24B6", {"a\u0301b_\u203F1\u00B2\u2160"}},
        RegexCase{"Spaces",
                  R"(\s)",
                  "a\u180Eb\u0085c\u200Bd\x1C"
                  "e\u2028f\uFEFF",
                  {"\u0085", "\u2028"}},
        RegexCase{"SpacesInAClass", R"([^\s\p{L}]+)", "a 12\u00B2 b\u0085", {"12\u00B2"}},
        RegexCase{"NoSpaces", R"(\S+)", "ab c\u0085d", {"ab", "c", "d"}},
        RegexCase{"NoWords", R"(\W+)", "a-+b\u203Fc", {"-+"}},
        RegexCase{"Digits", R"(\d)", "1\u0663\u00B2\u2160", {"1", "\u0663"}},
        RegexCase{"IgnoresCase", "(?i:'s)", "a'sb'Sc'\u017F", {"'s", "'S", "'\u017F"}},
        RegexCase{"CodePoints", R"([\u4e00-\u9fa5]+)", "a\u4E00\u4E01b", {"\u4E00\u4E01"}},
        RegexCase{"EmptyOnes", "(?=b)", "abcb", {"^", "^"}},
        RegexCase{"EmptyOnesNotBehindOthers", "x*", "abxc", {"^", "^", "x", "^"}},
        RegexCase{"BracketInAClass", R"([\[\]]+|[]x]+|[^]a]+)", "[]]xab", {"[]]", "x", "b"}},
        RegexCase{"InvalidBytesEndTheText",
                  "a+$",
                  "aa\xFF"
                  "a\xE2\x82"
                  "b",
                  {"aa", "a"}},
        RegexCase{"PosixClasses", "[[:punct:]]+", "a,.b", {",."}}),
    [](const auto& test) { return test.param.name; });
TEST_P(RegexMatches, AreThese) {
  const Regex regex(GetParam().pattern, "test");
  RegexMatcher matcher(regex);
  for (int again = 0; again < 2; ++again) {
    std::vector<std::string> found;
    const std::string_view text = GetParam().text;
    matcher.for_each_match(text, [&](size_t begin, size_t end) {
      found.push_back(begin == end ? "^" : std::string(text.substr(begin, end - begin)));
    });
    EXPECT_EQ(found, GetParam().matches);
  }
}

class RegexRefuses : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, RegexRefuses,
                         testing::Values("(", "[a", "a\\", "[a[b]]", "[a&&b]", R"([\S])", R"([\W])", R"(\h)", R"(\H)",
                                         R"(\C)", R"(\K)", R"(\G)", R"(\u12)", R"(\uXYZW)", "(*LIMIT_MATCH=1)a",
                                         R"(\p{Nonsense})", "[[:x", "a{2,1}", "(?<n>a)(?<n>b)"));
TEST_P(RegexRefuses, NamingFileAndPattern) {
  try {
    Regex(GetParam(), "tokenizer.json");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tokenizer.json"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(GetParam()), std::string::npos) << error.what();
  }
}

TEST(Regex, GivesUpInsteadOfRunningAway) {
  const Regex regex("(a+)+$", "test");
  RegexMatcher matcher(regex);
  const std::string text(100, 'a');
  EXPECT_THROW(matcher.for_each_match(text + "b", [](size_t, size_t) {}), Error);
  int count = 0;  // and goes on to work
  matcher.for_each_match("aa", [&](size_t, size_t) { ++count; });
  EXPECT_EQ(count, 1);
}

TEST(Regex, TakesDeepGroupsToTheHeap) {
  const Regex regex("(?:(a)|b)*c", "test");
  int count = 0;
  RegexMatcher(regex).for_each_match(std::string(300'000, 'a') + "c", [&](size_t begin, size_t end) {
    EXPECT_EQ(begin, 0u);
    EXPECT_EQ(end, 300'001u);
    ++count;
  });
  EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace weft
