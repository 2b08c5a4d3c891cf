// Grammars of regular expressions, GBNF and choices: what they accept, what they refuse, and hostile ones.
#include "serve/constrained.h"
#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {
namespace {

std::string times(size_t n, std::string_view text) {
  std::string all;
  for (size_t i = 0; i < n; ++i) all += text;
  return all;
}

struct FormCase {
  const char* name;
  Form form;
  std::vector<std::string> good, bad;
};
class Forms : public testing::TestWithParam<FormCase> {};

Form regex(std::string text) { return {.kind = FormKind::regex, .text = std::move(text), .choices = {}}; }
Form gbnf(std::string text) { return {.kind = FormKind::grammar, .text = std::move(text), .choices = {}}; }
Form choice(std::vector<std::string> texts) {
  return {.kind = FormKind::choice, .text = {}, .choices = std::move(texts)};
}

INSTANTIATE_TEST_SUITE_P(
    Regexes, Forms,
    testing::Values(
        FormCase{"Literal", regex("abc"), {"abc"}, {"", "ab", "abcd", "xabc"}},
        FormCase{"Alternatives", regex("ab|c|"), {"ab", "c", ""}, {"a", "abc"}},
        FormCase{"Quantifiers",
                 regex("a*b+c?d{2}e{1,2}f{2,}"),
                 {"bddeff", "aabbcddeefff"},
                 {"addeff", "bdeff", "bddeeeff", "bddef"}},
        FormCase{"LazyOnes", regex("a*?b+?c??"), {"b", "aabbc"}, {"", "a"}},
        FormCase{"Groups", regex("(ab)+(?:c|d)(?<x>e)(?P<y>f)"), {"abcef", "ababdef"}, {"cef", "abef"}},
        FormCase{"Escapes", regex(R"(\d\w\s\D\.\x41\u0042\u{43}\\)"), {"1_ x.ABC\\"}, {"a_ x.ABC\\", "1_ 1.ABC\\"}},
        FormCase{"Classes", regex("[a-c0-9_-][^a-c][]x]"), {"a-]", "-dx", "_\xC3\xA9x"}, {"d-x", "aax", "a-y"}},
        FormCase{"ClassEscapes", regex(R"([\d\-\]])"), {"5", "-", "]"}, {"\\", "d"}},
        FormCase{"Dot", regex("."), {"a", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"", "\n", "\xC3", "\xED\xA0\x80", "ab"}},
        FormCase{"Anchors", regex("^a|b$|^c$"), {"a", "b", "c"}, {"ab", ""}},
        FormCase{"Beyond", regex("[\xC3\xA0-\xC3\xBF]+"), {"\xC3\xA9\xC3\xA0"}, {"e", "\xC3"}},
        FormCase{"BraceIsText", regex("a{x}{,2}"), {"a{x}{,2}"}, {"aa"}},
        FormCase{"LoopOfNothing", regex("(a*)*b"), {"b", "aaab"}, {"a", ""}},
        FormCase{"LoopOfMaybes", regex("((a?)+|b?)*"), {"", "aabab"}, {"c"}}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Gbnfs, Forms,
    testing::Values(
        FormCase{
            "Rules",
            gbnf("root ::= greeting \" \" name  # a comment\ngreeting ::= \"hi\" | \"hello\"\nname ::= [a-z]+\n"),
            {"hi bob", "hello x"},
            {"hi", "hi Bob", "hey bob"}},
        FormCase{"Lines",
                 gbnf("root ::=\n  \"a\" |\n  (\n \"b\"\n \"c\" ) \"d\"\r\n\r\nx ::= root"),
                 {"a", "bcd"},
                 {"d", "bc"}},
        FormCase{"Nested", gbnf("root ::= \"(\" root \")\" | \"\""), {"", "()", "((()))"}, {"(", "())"}},
        FormCase{"Counts",
                 gbnf("root ::= \"ab\"{2} [0-9]{1,3} \"x\"{1,} \"y\"?"),
                 {"abab1x", "abab123xxy"},
                 {"ab1x", "abab1234x", "abab1"}},
        FormCase{"RepeatsOneLiteral", gbnf("root ::= \"ab\"*"), {"", "abab"}, {"aba", "b"}},
        FormCase{"ClassesOfMany",
                 gbnf("root ::= [^\\n\\]a-c]+ . [\\x41-\\x43\\u00e9]"),
                 {"xy\nB", "?\xC3\xA9\xC3\xA9"},
                 {"a.B", "xyz"}},
        FormCase{"UnitLoop", gbnf("root ::= root | \"x\""), {"x"}, {"", "xx"}},
        FormCase{"DeadAlternative", gbnf("root ::= \"a\" dead | \"b\"\ndead ::= \"x\" dead"), {"b"}, {"a", "ax"}}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Choices, Forms,
    testing::Values(FormCase{"Words",
                             choice({"yes", "no", "not sure", "yes"}),
                             {"yes", "no", "not sure"},
                             {"", "not", "ye", "yesno"}},
                    FormCase{"EmptyOne", choice({"", "a", "ab"}), {"", "a", "ab"}, {"b", "abc"}},
                    FormCase{"Bytes", choice({"\xC3\xA9", "\xC3\xA8"}), {"\xC3\xA9", "\xC3\xA8"}, {"\xC3", "e"}}),
    [](const auto& test) { return test.param.name; });

TEST_P(Forms, AcceptWhatTheySayAndNothingElse) {
  const Grammar grammar = grammar_of(GetParam().form);
  for (const std::string& text : GetParam().good) EXPECT_TRUE(accepts(grammar, text)) << text;
  for (const std::string& text : GetParam().bad) EXPECT_FALSE(accepts(grammar, text)) << text;
}

struct RefusalCase {
  const char* name;
  Form form;
  std::string want;
};
class RefusedForms : public testing::TestWithParam<RefusalCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, RefusedForms,
    testing::Values(
        RefusalCase{"Lookahead", regex("a(?=b)"), "lookaround"},
        RefusalCase{"Lookbehind", regex("(?<!a)b"), "lookaround"},
        RefusalCase{"Backreference", regex("(a)\\1"), "backreferences"},
        RefusalCase{"Flags", regex("(?i)a"), "flags"}, RefusalCase{"Boundary", regex("\\ba"), "word boundaries"},
        RefusalCase{"Property", regex("\\p{L}"), "properties"}, RefusalCase{"Possessive", regex("a*+"), "possessive"},
        RefusalCase{"NothingToRepeat", regex("a|*"), "nothing to repeat"},
        RefusalCase{"AnchorInside", regex("(^a)"), "ends of the expression"},
        RefusalCase{"Open", regex("(a"), "has no )"}, RefusalCase{"Close", regex("a)"), "without its ("},
        RefusalCase{"OpenClass", regex("[a"), "has no ]"},
        RefusalCase{"BackwardRange", regex("[z-a]"), "before it begins"},
        RefusalCase{"NotUtf8", regex("\xFF"), "UTF-8"},
        RefusalCase{"BackwardCount", regex("a{3,2}"), "at least 3 and at most 2"},
        RefusalCase{"ManyTimes", regex("a{1000000}"), "counts to 1000000"},
        RefusalCase{"NestedCounts", regex(times(100, "(a{10000})")), "too large"},
        RefusalCase{"DeepGroups", regex(times(10000, "(") + "a" + times(10000, ")")), "nested too deep"},
        RefusalCase{"Impossible", regex("a[^\\x00-\\u{10FFFF}]"), "no text can have this form"},
        RefusalCase{"NoRoot", gbnf("a ::= \"x\""), "no rule root"},
        RefusalCase{"Undefined", gbnf("root ::= other"), "no rule other"},
        RefusalCase{"Twice", gbnf("root ::= \"a\"\nroot ::= \"b\""), "line 2"},
        RefusalCase{"NoSign", gbnf("root = \"a\""), "line 1"},
        RefusalCase{"OpenLiteral", gbnf("\n\nroot ::= \"a\n"), "line 3"},
        RefusalCase{"BadEscape", gbnf("root ::= \"\\q\""), "escape"},
        RefusalCase{"OpenGroup", gbnf("root ::= (\"a\""), "has no )"},
        RefusalCase{"Stray", gbnf("root ::= \"a\" )"), "cannot stand here"},
        RefusalCase{"LeftRecursion", gbnf("root ::= sum\nsum ::= sum \"+\" \"1\" | \"1\""),
                    "left recursion: the rule sum"},
        RefusalCase{"HiddenLeftRecursion", gbnf("root ::= \"a\"? other \"b\"\nother ::= [x]* root | [y]"),
                    "left recursion"},
        RefusalCase{"Endless", gbnf("root ::= \"a\" root"), "no text can have this form"},
        RefusalCase{"DeepGrammar", gbnf("root ::= " + times(10000, "(") + "\"a\""), "nested too deep"},
        RefusalCase{"ManyRules", gbnf("root ::= \"a\"{9999} \"b\"{9999}" + times(60, " [ab]{0,9999}")), "too large"},
        RefusalCase{"NoChoices", choice({}), "choices is empty"}),
    [](const auto& test) { return test.param.name; });

TEST_P(RefusedForms, AreToldWhy) {
  EXPECT_NE(refusal(GetParam().form).find(GetParam().want), std::string::npos) << refusal(GetParam().form);
}

// Who asks whether any text is left must not take another mistake for the answer.
TEST(GrammarBuilderTest, NoTextIsNoOtherMistake) {
  const auto has_no_text = [](const Form& form) {
    try {
      grammar_of(form);
    } catch (const NoText&) {
      return true;
    } catch (const UsageError&) {
    }
    return false;
  };
  EXPECT_TRUE(has_no_text(gbnf("root ::= \"a\" root")));
  EXPECT_FALSE(has_no_text(gbnf("root ::= root \"a\" | \"b\"")));
  EXPECT_FALSE(has_no_text(regex(times(100, "(a{10000})"))));
}

TEST(MatcherTest, AmbiguityTakesNoLonger) {
  for (const char* text : {"(a|a)*", "(a*)*", "((a|a)(a|a))*a?", "(a?){50}a{0,200}"}) {
    const Grammar grammar = grammar_of(regex(text));
    EXPECT_TRUE(accepts(grammar, times(200, "a"))) << text;
    EXPECT_FALSE(accepts(grammar, times(200, "a") + "b")) << text;
  }
  EXPECT_TRUE(accepts(gbnf("root ::= \"\" | \"a\" root root"), times(100, "a")));
}

TEST(MatcherTest, TooManyWaysAreAnErrorNotALongWait) {
  const Grammar grammar = grammar_of(regex("(a?){9999}"));
  EXPECT_THROW(accepts(grammar, times(3, "a")), Error);
}

TEST(MatcherTest, NestsDeep) {
  const Grammar grammar = grammar_of(gbnf("root ::= \"(\" root \")\" | \"\""));
  EXPECT_TRUE(accepts(grammar, times(100'000, "(") + times(100'000, ")")));
  EXPECT_FALSE(accepts(grammar, times(100'000, "(") + times(99'999, ")")));
}

TEST(MatcherTest, ReleaseForgetsWhatCameLater) {
  const Grammar grammar = grammar_of(gbnf("root ::= \"(\" root \")\" root | \"\""));
  Matcher matcher(grammar);
  const Matcher::State start = matcher.start();
  const size_t mark = matcher.mark();
  Matcher::State first, state, next;
  ASSERT_TRUE(matcher.step(start, '(', first));
  for (int round = 0; round < 3; ++round) {
    matcher.release(mark);
    ASSERT_TRUE(matcher.step(start, '(', state));
    EXPECT_EQ(state, first) << "the same stacks get the same numbers";
    for (int i = 0; i < 300; ++i) {
      ASSERT_TRUE(matcher.step(state, '(', next));
      std::swap(state, next);
    }
  }
}

}  // namespace
}  // namespace weft::constrain
