// Arguments as Python writes them: what they are in JSON, and what is none.
#include "weft/serve/api/python_arguments.h"

#include <nlohmann/json.hpp>

#include "serve/constrained.h"
#include "serve/tool_call_cases.h"
#include "weft/serve/api/tool_calls.h"

namespace weft::api {
namespace {

using nlohmann::json;

struct PythonCase {
  const char* name;
  std::string python;
  std::optional<std::string> want;  // JSON; nothing: it is none
};

class PythonArguments : public testing::TestWithParam<PythonCase> {};
INSTANTIATE_TEST_SUITE_P(
    Table, PythonArguments,
    testing::Values(
        PythonCase{"None", "", "{}"}, PythonCase{"Spaces", " \n", "{}"},
        PythonCase{"Two", "a=1, b='x'", R"({"a": 1, "b": "x"})"},
        PythonCase{"Lines", "\n  a = 1 ,\n  b = \"x\",\n", R"({"a": 1, "b": "x"})"},
        PythonCase{"Words", "a=True, b=False, c=None, d=true, e=null",
                   R"({"a": true, "b": false, "c": null, "d": true, "e": null})"},
        PythonCase{
            "Numbers", "a=-1, b=+2.5, c=.5, d=1., e=1e-3, f=1_000, g=0x1F, h=0, i=00.5, j=12345678901234567890",
            R"({"a": -1, "b": 2.5, "c": 0.5, "d": 1.0, "e": 0.001, "f": 1000, "g": 31, "h": 0, "i": 0.5, "j": 12345678901234567890})"},
        PythonCase{"Escapes", R"(a='it\'s \x41\u00fc\n\101\q "so"', b="\ud83d\ude00\/", c='\U0001F600')",
                   "{\"a\": \"it's A\xC3\xBC\\nA\\\\q \\\"so\\\"\", \"b\": \"\xF0\x9F\x98\x80/\", \"c\": "
                   "\"\xF0\x9F\x98\x80\"}"},
        PythonCase{"HalfACharacter", R"(a="\ud83d!")", "{\"a\": \"\xEF\xBF\xBD!\"}"},
        PythonCase{"Lists", "a=[1, [2, 'x'], (), (3,), (4), (5, [6, 7]),]",
                   R"({"a": [1, [2, "x"], [], [3], 4, [5, [6, 7]]]})"},
        PythonCase{"TupleOfLists", "a=([1, 2])", R"({"a": [1, 2]})"},
        PythonCase{"Dicts", "a={'x': {}, 1: \"y\", 'x': 2,}", R"({"a": {"x": 2, "1": "y"}})"},
        PythonCase{"LastCounts", "a=1, a=2", R"({"a": 2})"}, PythonCase{"NoName", "1", {}},
        PythonCase{"NoValue", "a=", {}}, PythonCase{"NoComma", "a=1 b=2", {}},
        PythonCase{"TwoCommas", "a=1,,b=2", {}}, PythonCase{"Call", "a=f(1)", {}}, PythonCase{"Sum", "a=1+2", {}},
        PythonCase{"Word", "a=perhaps", {}}, PythonCase{"Octal", "a=007", {}}, PythonCase{"Open", "a='x", {}},
        PythonCase{"OpenList", "a=[1", {}}, PythonCase{"ListWithoutComma", "a=[1 2]", {}},
        PythonCase{"OpenEscape", "a='\\", {}}, PythonCase{"BadEscape", "a='\\xZZ'", {}},
        PythonCase{"DictWithoutValue", "a={'x'}", {}}, PythonCase{"KeyIsAList", "a={[1]: 2}", {}},
        PythonCase{"Exponent", "a=1e", {}}, PythonCase{"Dot", "a=.", {}}, PythonCase{"BadName", "a-b=1", {}},
        PythonCase{"DigitName", "1a=1", {}},
        PythonCase{"Deep", "a=" + std::string(60, '[') + std::string(60, ']'),
                   "{\"a\": " + std::string(60, '[') + std::string(60, ']') + "}"},
        PythonCase{"TooDeep", "a=" + std::string(70, '[') + std::string(70, ']'), {}},
        PythonCase{"FarTooDeep", "a=" + std::string(1 << 20, '('), {}},
        PythonCase{"TooDeepDicts", "a=" + std::string(1 << 20, '{'), {}}),
    [](const auto& test) { return test.param.name; });

TEST_P(PythonArguments, AreReadAsJson) {
  const PythonCase& c = GetParam();
  const std::optional<std::string> read = json_of_python_arguments(c.python);
  ASSERT_EQ(read.has_value(), c.want.has_value()) << read.value_or("");
  if (read) EXPECT_EQ(json::parse(*read, nullptr, false), json::parse(*c.want)) << *read;
}

class PythonCalls : public testing::TestWithParam<ToolCallCase> {};
INSTANTIATE_TEST_SUITE_P(
    Table, PythonCalls,
    testing::Values(
        ToolCallCase{"Llama4",
                     ToolFormat::pythonic,
                     "[f(a=1), g.h(b='x(]')]",
                     "",
                     {{"f", R"({"a": 1})"}, {"g.h", R"({"b": "x(]"})"}}},
        ToolCallCase{"Llama4Marked", ToolFormat::pythonic, "<|python_start|>[f()]<|python_end|>", "", {{"f", "{}"}}},
        ToolCallCase{"Llama4List", ToolFormat::pythonic, "[1, 2, (3)]", "[1, 2, (3)]", {}},
        ToolCallCase{"Llama4Link", ToolFormat::pythonic, "[see](https://x.y) so.", "[see](https://x.y) so.", {}},
        ToolCallCase{"Llama4More", ToolFormat::pythonic, "[f(a=1)] would do.", "[f(a=1)] would do.", {}},
        ToolCallCase{"Llama4Text", ToolFormat::pythonic, "So: [f(a=1)]", "So: [f(a=1)]", {}},
        ToolCallCase{"Lfm2",
                     ToolFormat::lfm2,
                     "So: <|tool_call_start|>[f(a=1)]<|tool_call_end|>Wait (now=1).",
                     "So:Wait (now=1).",
                     {{"f", R"({"a": 1})"}}},
        ToolCallCase{"Lfm2Json",
                     ToolFormat::lfm2,
                     "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {}}]<|tool_call_end|>",
                     "",
                     {{"f", "{}"}}},
        ToolCallCase{"Lfm2Positional",
                     ToolFormat::lfm2,
                     "<|tool_call_start|>[f(1)]<|tool_call_end|>",
                     "<|tool_call_start|>[f(1)]<|tool_call_end|>",
                     {}},
        ToolCallCase{"Gemma",
                     ToolFormat::gemma,
                     "So:\n```tool_code\nf(a=True)\ng()\n```",
                     "So:",
                     {{"f", R"({"a": true})"}, {"g", "{}"}}},
        ToolCallCase{"GemmaList",
                     ToolFormat::gemma,
                     "```tool_code\n[f(a=1), g()]\n```",
                     "",
                     {{"f", R"({"a": 1})"}, {"g", "{}"}}},
        ToolCallCase{"GemmaOtherCode",
                     ToolFormat::gemma,
                     "```tool_code\nprint(f(a=1))\n```",
                     "```tool_code\nprint(f(a=1))\n```",
                     {}},
        ToolCallCase{"GemmaFence", ToolFormat::gemma, "```python\nf(a=1)\n```", "```python\nf(a=1)\n```", {}}),
    [](const auto& test) { return test.param.name; });

TEST_P(PythonCalls, AreReadHoweverTheTextIsParted) { expect_read_however_parted(GetParam()); }

TEST(PythonGrammarTest, FollowsTheSchema) {
  OutputForm form{.kind = OutputForm::Kind::tool_calls, .choices = {"f"}};
  form.tool_format = ToolFormat::pythonic;
  form.schemas = {R"({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": ["string", "null"]},
      "c": {"type": "array", "items": {"type": "boolean"}}}, "required": ["b"]})"};
  const auto accepts = [&](const std::string& arguments) {
    return constrain::accepts(form, "[f(" + arguments + ")]");
  };
  EXPECT_TRUE(accepts("a=True, b=\"x\", c=[True, false]"));
  EXPECT_TRUE(accepts("b=None"));
  EXPECT_TRUE(accepts("a=false, b=null"));
  EXPECT_TRUE(accepts("b=\"x\", c=[]"));
  for (const char* wrong :
       {"", "a=True", "a=1, b=None", "b=x", "b=None a=True", "b=None, a=True", "b=None,", "b=None, d=1"})
    EXPECT_FALSE(accepts(wrong)) << wrong;
  form.schemas = {R"({"type": "object"})"};
  EXPECT_TRUE(accepts(""));
  EXPECT_TRUE(accepts("any=1, other={\"x\": None}"));
  form.schemas = {R"({"type": "object", "properties": {"a-b": {}}})"};
  EXPECT_NE(constrain::refusal(form).find("'a-b'"), std::string::npos) << constrain::refusal(form);
  form.choices = {"f g"}, form.schemas = {R"({"type": "object"})"};
  EXPECT_NE(constrain::refusal(form).find("f g"), std::string::npos);
}

TEST(DsmlGrammarTest, TagsSayWhetherAValueIsAText) {
  OutputForm form{.kind = OutputForm::Kind::tool_calls, .choices = {"f"}};
  form.tool_format = ToolFormat::deepseek_v32;
  const auto accepts = [&](const char* schema, const std::string& is_text, const std::string& value) {
    form.schemas = {std::string(R"({"type": "object", "properties": {"a": )") + schema + R"(}, "required": ["a"]})"};
    const std::string calls = "<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" string=\"" + is_text +
                              "\">" + value + "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>";
    return constrain::accepts(form, calls);
  };
  EXPECT_TRUE(accepts(R"({"type": "string"})", "true", "12 \"x\""));
  EXPECT_FALSE(accepts(R"({"type": "string"})", "false", "\"x\""));
  EXPECT_TRUE(accepts(R"({"type": ["string", "integer"]})", "false", "12"));
  EXPECT_TRUE(accepts(R"({"type": ["string", "integer"]})", "true", "twelve"));
  EXPECT_FALSE(accepts(R"({"type": ["string", "integer"]})", "false", "twelve"));
  EXPECT_TRUE(accepts(R"({"enum": ["red", 3]})", "true", "red"));
  EXPECT_TRUE(accepts(R"({"enum": ["red", 3]})", "false", "3"));
  EXPECT_FALSE(accepts(R"({"enum": ["red", 3]})", "true", "3"));
  EXPECT_TRUE(accepts("{}", "true", "any"));
  EXPECT_TRUE(accepts("{}", "false", "[1]"));
  EXPECT_TRUE(accepts(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "false", "null"));
}

TEST(DsmlArgumentsTest, AreWhatTheirTagsSay) {
  EXPECT_EQ(json_of_arguments({{"a", "12", true}, {"b", " 12 ", false}, {"c", "twelve", false}},
                              R"({"properties": {"a": {"type": "integer"}}})"),
            R"({"a":"12","b":12,"c":"twelve"})");
}

}  // namespace
}  // namespace weft::api
