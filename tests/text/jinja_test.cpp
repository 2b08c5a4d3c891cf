// Jinja: templates give what jinja2 gives; mistakes name their line; nothing a template does passes its limits.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "weft/base/file.h"
#include "weft/base/json.h"
#include "weft/text/jinja/template.h"

namespace weft::jinja {
namespace {

using Json = nlohmann::ordered_json;
using Variables = std::vector<std::pair<std::string, Value>>;

Variables variables_of(const Json& object) {
  Variables variables;
  for (const auto& [name, value] : object.items()) variables.emplace_back(name, Value::from_json(value));
  return variables;
}

std::string render(std::string_view text, const Json& context = Json::object(), const Limits& limits = {}) {
  return Template(text, "t").render(variables_of(context), limits).text;
}

std::string error_of(std::string_view text, const Limits& limits = {}) {
  try {
    render(text, Json::object(), limits);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Jinja, GivesWhatJinja2Gives) {
  const std::string path = WEFT_SOURCE_DIR "/tests/text/data/jinja.golden.json";
  const Json golden = parse_ordered_json(read_file(path, 1 << 20), path);
  EXPECT_GT(golden["cases"].size(), 500u);
  for (const Json& row : golden["cases"]) {
    const auto text = row["template"].get<std::string>();
    std::string result;
    try {
      result = render(text, golden["context"]);
    } catch (const Error& e) {
      EXPECT_TRUE(row.contains("fails")) << text << "\n" << e.what();
      continue;
    }
    ASSERT_FALSE(row.contains("fails")) << text << "\n" << result;
    EXPECT_EQ(result, row["text"].get<std::string>()) << text;
  }
}

struct JinjaCase {
  std::string name, text, expected;
};
void PrintTo(const JinjaCase& test, std::ostream* out) { *out << test.text.substr(0, 200); }
const auto name_of_case = [](const auto& test) { return test.param.name; };

// Where weft has its own way, or jinja2's result depends on the machine.
class JinjaTextTest : public testing::TestWithParam<JinjaCase> {};
INSTANTIATE_TEST_SUITE_P(Texts, JinjaTextTest,
                         testing::Values(JinjaCase{"Plain", "no tags at all", "no tags at all"},
                                         JinjaCase{"Empty", "", ""},
                                         JinjaCase{"Range", "{{ range(3) }}", "[0, 1, 2]"},
                                         JinjaCase{"Date", "{{ strftime_now('%Y') }}", "1970"},
                                         JinjaCase{"NotUtf8", "{{ '\xff\xfe'|length }}\xff", "2\xff"},
                                         JinjaCase{"SandboxedAttribute",
                                                   "{{ ''.__class__ is defined }}{{ {}.update is defined }}",
                                                   "FalseFalse"},
                                         JinjaCase{"Mutation", "{{ [].append is defined }}", "False"}),
                         name_of_case);
TEST_P(JinjaTextTest, IsRendered) { EXPECT_EQ(render(GetParam().text), GetParam().expected); }

class JinjaErrorTest : public testing::TestWithParam<JinjaCase> {};
INSTANTIATE_TEST_SUITE_P(
    Mistakes, JinjaErrorTest,
    testing::Values(
        JinjaCase{"OpenTag", "a\nb {{ x", "t, line 2: a tag is not closed; write }}"},
        JinjaCase{"OpenComment", "{# x", "t, line 1: a comment is not closed; write #}"},
        JinjaCase{"OpenRaw", "{% raw %} {{", "a raw block is not closed"},
        JinjaCase{"OpenString", "\n{{ 'x }}", "t, line 2: a string is not closed"},
        JinjaCase{"OpenIf", "{% if x %}\n", "endif was expected, but there is the end of the template"},
        JinjaCase{"WrongEnd", "{% for x in y %}\n{% endif %}",
                  "t, line 2: 'endfor' was expected, but there is 'endif'"},
        JinjaCase{"LooseEnd", "{% endif %}", "'endif' ends nothing"},
        JinjaCase{"ElseTwice", "{% if x %}{% else %}{% else %}{% endif %}", "endif was expected"},
        JinjaCase{"WrongBracket", "{{ (1] }}", "']' where ')' was expected"},
        JinjaCase{"ClosesNothing", "{{ 1) }}", "')' closes nothing"},
        JinjaCase{"UnknownSign", "{{ 1 ? 2 }}", "'?' has no meaning in a tag"},
        JinjaCase{"NoValue", "{{ 1 + }}", "a value was expected, but there is }}"},
        JinjaCase{"UnknownFilter", "{{ x|upperr }}", "there is no filter 'upperr'; did you mean upper?"},
        JinjaCase{"UnknownTest", "{{ x is defind }}", "there is no test 'defind'; did you mean defined?"},
        JinjaCase{"Include", "{% include 'a' %}", "weft's templates have no statement 'include'"},
        JinjaCase{"Recursive", "{% for x in y recursive %}{% endfor %}", "no recursive loops"},
        JinjaCase{"BreakOutside", "{% macro f() %}{% break %}{% endmacro %}", "outside of all loops"},
        JinjaCase{"ConstantSet", "{% set true = 1 %}", "'true' cannot be set"},
        JinjaCase{"LargeNumber", "{{ 9223372036854775808 }}", "is no number that templates can hold"},
        JinjaCase{"Surrogate", "{{ '\\ud800' }}", "is not the number of a character"},
        JinjaCase{"DefaultFirst", "{% macro f(a=1, b) %}{% endmacro %}", "follows one with a default"},
        JinjaCase{"Raised", "\n\n{{ raise_exception('no ' ~ 1) }}", "t, line 3: the template refuses this: no 1"},
        JinjaCase{"Undefined", "\n{{ a.b }}", "t, line 2: 'a' is undefined"},
        JinjaCase{"UndefinedKey", "{{ {'a': 1}.b.c }}", "a dict has no 'b'"},
        JinjaCase{"WrongTypes", "{{ 'a' + 1 }}", "a string + an integer cannot be computed"},
        JinjaCase{"Overflow", "{{ 9223372036854775807 + 1 }}", "larger than 64 bits hold"},
        JinjaCase{"OverflowByNegation", "{{ -(-9223372036854775807 - 1) }}", "larger than 64 bits hold"},
        JinjaCase{"OverflowByPower", "{{ 10 ** 100 }}", "larger than 64 bits hold"},
        JinjaCase{"DivisionByZero", "{{ 1 % 0 }}", "divided by zero"},
        JinjaCase{"MacroArgument", "{% macro f(a) %}{% endmacro %}{{ f(b=1) }}", "the macro f has no parameter 'b'"},
        JinjaCase{"FilterArgument", "{{ 'a'|trim(b=1) }}", "trim has no argument 'b'"},
        JinjaCase{"TooManyArguments", "{{ 'a'|trim(1, 2) }}", "trim takes 1 arguments at most, not 2"},
        JinjaCase{"LineAfterMacro", "{% macro f() %}\n\n{% endmacro %}\n{{ f() ~ a.b }}",
                  "t, line 4: 'a' is undefined"},
        JinjaCase{"JsonOfFunction", "{{ range|tojson }}", "the function range cannot be written as JSON"},
        JinjaCase{"Unpacking", "{% for a, b in [[1]] %}{% endfor %}", "1 values cannot be assigned to 2 names"},
        JinjaCase{"GenerationInMacro", "{% macro f() %}{% generation %}{% endgeneration %}{% endmacro %}{{ f() }}",
                  "has no place in the output"}),
    name_of_case);
TEST_P(JinjaErrorTest, NamesLineAndReason) {
  const std::string message = error_of(GetParam().text);
  EXPECT_NE(message.find(GetParam().expected), std::string::npos) << message;
  EXPECT_EQ(message.find("t, line "), 0u) << message;
}

TEST(Jinja, GenerationBlocksAreFound) {
  const Template parsed("{% for i in [1, 22] %}{{ i }}: {% generation %}é{{ i }}{% endgeneration %}\n{% endfor %}.",
                        "t");
  EXPECT_TRUE(parsed.has_generation_blocks());
  const Rendered rendered = parsed.render({});
  EXPECT_EQ(rendered.text, "1: é122: é22.");
  EXPECT_EQ(rendered.generations, (std::vector<TextSpan>{{3, 6}, {10, 14}}));
  EXPECT_FALSE(Template("x", "t").has_generation_blocks());
}

std::string repeated(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

// Each would run for ever, fill the memory or overflow the stack.
class JinjaBombTest : public testing::TestWithParam<JinjaCase> {};
INSTANTIATE_TEST_SUITE_P(
    Bombs, JinjaBombTest,
    testing::Values(
        JinjaCase{"Range", "{{ range(1000000000) }}", "a range has more than"},
        JinjaCase{"RangeOfExtremes",
                  "{{ range(-9223372036854775807, 9223372036854775807, 9000000000000000000)|list }}"
                  "{{ range(9223372036854775807) }}",
                  "a range has more than"},
        JinjaCase{
            "NestedLoops",
            "{% for a in range(60000) %}{% for b in range(60000) %}{% for c in range(60000) %}{% endfor %}{% endfor "
            "%}"
            "{% endfor %}",
            "steps"},
        JinjaCase{"RecursiveMacro", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested deeper"},
        JinjaCase{"MutualMacros",
                  "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
                  "nested deeper"},
        JinjaCase{"DoublingText",
                  "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}"
                  "{% endfor %}",
                  "more than"},
        JinjaCase{"DoublingList",
                  "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}"
                  "{% endfor %}",
                  "steps"},
        JinjaCase{"SharedTree",
                  "{% set ns = namespace(l=[1]) %}{% for i in range(64) %}{% set ns.l = [ns.l, ns.l] %}"
                  "{% endfor %}{{ ns.l }}",
                  "holds more than"},
        JinjaCase{
            "SharedTreesCompared",
            "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(20) %}{% set ns.a = [ns.a, ns.a] %}"
            "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{% for i in range(60000) %}{{ ns.a == ns.b }}{% endfor %}",
            "steps"},
        JinjaCase{"DeepValue",
                  "{% set ns = namespace(l=1) %}{% for i in range(60000) %}{% set ns.l = [ns.l] %}{% endfor %}",
                  "nested deeper"},
        JinjaCase{"RepeatedText", "{{ 'abc' * 9223372036854775807 }}", "bytes"},
        JinjaCase{"RepeatedList", "{{ [1, 2] * 9223372036854775807 }}", "steps"},
        JinjaCase{"Output",
                  "{% for i in range(60000) %}{% for j in range(60000) %}" + repeated("text ", 100) +
                      "{% endfor %}{% endfor %}",
                  "bytes"},
        JinjaCase{"Center", "{{ 'a'|center(9000000000000000000) }}", "bytes"},
        JinjaCase{"Justify", "{{ 'a'.ljust(9223372036854775807) }}", "bytes"},
        JinjaCase{"ZeroFill", "{{ '-1'.zfill(1000000000) }}", "bytes"},
        JinjaCase{"Indent", "{{ ('a\n' * 100000)|indent(100000) }}", "bytes"},
        JinjaCase{"IndentWidth", "{{ 'a'|indent(9000000000000000000) }}", "bytes"},
        JinjaCase{"JsonIndent", "{{ range(60000)|list|tojson(indent=9223372036854775807)|length }}", "no error"},
        JinjaCase{"Replace", "{{ ('a' * 1000000)|replace('a', 'b' * 1000) }}", "bytes"},
        JinjaCase{"ReplaceNothing", "{{ ('a' * 1000000).replace('', 'b' * 1000) }}", "bytes"},
        JinjaCase{"Join", "{{ range(60000)|join('x' * 1000000) }}", "bytes"},
        JinjaCase{"JoinMethod", "{{ ('x' * 1000000).join('a' * 60000) }}", "bytes"},
        JinjaCase{"FormatWidth", "{{ '%999999999d' % 1 }}", "a width of more than"},
        JinjaCase{"FormatPrecision", "{{ '{:.999999999f}'.format(1.5) }}", "a width of more than"},
        JinjaCase{"Batch", "{{ [1]|batch(9000000000000000000, 'x') }}", "steps"},
        JinjaCase{"Unique", "{{ range(60000)|unique|list|length }}", "steps"},
        JinjaCase{"SlowSearch",
                  "{{ ('a' * 1000000) in ('a' * 500000 ~ 'b') * 2 }}{{ ('a' * 1000000).count('a' * 500000 ~ 'b') }}",
                  "no error"},
        JinjaCase{"SlowSearchFromTheEnd", "{{ ('a' * 1000000).rfind('b' ~ 'a' * 500000) }}", "steps"},
        JinjaCase{"SlowStrip", "{{ ('a' * 1000000).strip('b' * 500000 ~ 'a') }}", "steps"},
        JinjaCase{"ReprOfControls", "{{ ['\\x01' * 1000] * 5000 }}", "bytes"},
        JinjaCase{"LongName", "{{ " + std::string(100'000, 'n') + " }}", "a name has more than 255 bytes"},
        JinjaCase{"ManyScopes",
                  repeated("{% with %}", 150) +
                      "{% for i in range(60000) %}{% for j in range(60000) %}{{ nothing }}" +
                      "{% endfor %}{% endfor %}" + repeated("{% endwith %}", 150),
                  "steps"},
        JinjaCase{"RoundPrecision", "{{ 1.5|round(9223372036854775807) }}", "the precision is"},
        JinjaCase{"Strftime", "{{ strftime_now('%c' * 10000) }}", "bytes"},
        JinjaCase{"DeepBrackets", "{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}",
                  "nested deeper than 200"},
        JinjaCase{"DeepLists", "{{ " + repeated("[", 100'000) + repeated("]", 100'000) + " }}",
                  "nested deeper than 200"},
        JinjaCase{"DeepNot", "{{ " + repeated("not ", 100'000) + "1 }}", "nested deeper than 200"},
        JinjaCase{"DeepSigns", "{{ " + repeated("-", 100'000) + "1 }}", "nested deeper than 200"},
        JinjaCase{"DeepElse", "{{ " + repeated("1 if 0 else ", 50'000) + "1 }}", "nested deeper than 200"},
        JinjaCase{"DeepIfs", repeated("{% if 1 %}", 100'000), "nested deeper than 200"},
        JinjaCase{"DeepTargets", "{% set " + repeated("(", 100'000) + "a" + repeated(")", 100'000) + " = 1 %}",
                  "nested deeper than 200"},
        JinjaCase{"LongSum", "{{ 1" + repeated("+1", 100'000) + " }}", "deeper than 300"},
        JinjaCase{"LongAnd", "{{ 1" + repeated(" and 1", 100'000) + " }}", "deeper than 300"},
        JinjaCase{"LongFilters", "{{ 1" + repeated("|abs", 100'000) + " }}", "deeper than 300"},
        JinjaCase{"LongAttributes", "{{ a" + repeated(".b", 100'000) + " }}", "deeper than 300"},
        JinjaCase{"LongTests", "{{ 1" + repeated(" is odd", 100'000) + " }}", "deeper than 300"},
        JinjaCase{"LongElif", "{% if 0 %}" + repeated("{% elif 0 %}", 60'000) + "{% endif %}", "no error"},
        JinjaCase{"LongConcatenation", "{{ 1" + repeated(" ~ 1", 100'000) + " }}", "no error"},
        JinjaCase{"RawTags", "{% raw %}" + repeated("{%- ", 100'000), "is not closed"},
        JinjaCase{"LargeTemplate", std::string(2'000'000, 'x'), "at most 1048576 are read"}),
    name_of_case);
TEST_P(JinjaBombTest, IsDisarmed) {
  const std::string message = error_of(GetParam().text, {.max_steps = 1'000'000});
  EXPECT_NE(message.find(GetParam().expected), std::string::npos) << message.substr(0, 300);
}

// Values that refer to each other are released: the leak checker of the sanitizers would tell.
TEST(Jinja, CyclesAreReleased) {
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.list = [ns, [ns]] %}x"), "x");
  EXPECT_EQ(render("{% macro f() %}{{ g }}{% endmacro %}{% set g = [f] %}{% set h = {'f': f} %}x"), "x");
  EXPECT_EQ(render("{% set ns = namespace() %}{% for i in [1] %}{% set ns.loop = loop %}"
                   "{% set _ = loop.changed(loop, ns) %}{% macro m() %}{{ i }}{% endmacro %}{% set ns.m = m %}"
                   "{% endfor %}{{ ns.m() }}{{ ns.loop.index }}"),
            "12")
      << "a loop that is over stands behind its last element";
}

TEST(Jinja, OneTemplateIsRenderedByManyThreads) {
  const Template parsed(
      "{% set ns = namespace(n=0) %}{% for i in range(100) %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}", "t");
  std::vector<std::thread> threads;
  for (int x = 0; x < 4; ++x) {
    threads.emplace_back([&parsed, x] {
      for (int i = 0; i < 20; ++i) EXPECT_EQ(parsed.render({{"x", x}}).text, std::to_string(100 * x));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace weft::jinja
