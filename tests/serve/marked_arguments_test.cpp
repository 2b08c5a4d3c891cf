// Arguments of Gemma 4: read as JSON, found in answers, and written by the grammar of their schema.
#include "weft/serve/api/marked_arguments.h"

#include <nlohmann/json.hpp>

#include "serve/constrained.h"
#include "serve/tool_call_cases.h"

namespace weft::api {
namespace {

using nlohmann::json;

// '#' stands for the mark.
std::string marked(std::string_view text) {
  std::string all;
  for (const char c : text) all += c == '#' ? std::string(kTextMark) : std::string(1, c);
  return all;
}

struct MarkedCase {
  const char* name;
  std::string text;
  std::optional<std::string> want;  // JSON; nothing: it is none
};
class MarkedArguments : public testing::TestWithParam<MarkedCase> {};
INSTANTIATE_TEST_SUITE_P(
    Table, MarkedArguments,
    testing::Values(MarkedCase{"None", "{}", "{}"}, MarkedCase{"Spaces", " { } \n", "{}"},
                    MarkedCase{"Two", "{a:1,b:#x#}", R"({"a": 1, "b": "x"})"},
                    MarkedCase{"Lines", "{\n a : -1.5e3 ,\n b : #x# }", R"({"a": -1500.0, "b": "x"})"},
                    MarkedCase{"Words", "{a:true,b:false,c:null}", R"({"a": true, "b": false, "c": null})"},
                    MarkedCase{"TextsAsTheyAre", "{a:#\"}]\\n,:{ <|#}", R"({"a": "\"}]\\n,:{ <|"})"},
                    MarkedCase{"Empty", "{a:##}", R"({"a": ""})"},
                    MarkedCase{"NamesAsTexts", "{#a:b#:1}", R"({"a:b": 1})"},
                    MarkedCase{"Inside", "{a:{b:[1,{c:#x#},[]]}}", R"({"a": {"b": [1, {"c": "x"}, []]}})"},
                    MarkedCase{"LastCounts", "{a:1,a:2}", R"({"a": 2})"}, MarkedCase{"Bare", "{a:x}", {}},
                    MarkedCase{"Quoted", "{a:\"x\"}", {}}, MarkedCase{"NoName", "{:1}", {}},
                    MarkedCase{"NoValue", "{a:}", {}}, MarkedCase{"NoComma", "{a:1 b:2}", {}},
                    MarkedCase{"TwoCommas", "{a:1,,b:2}", {}}, MarkedCase{"LastComma", "{a:1,}", {}},
                    MarkedCase{"Open", "{a:1", {}}, MarkedCase{"OpenText", "{a:#x}", {}},
                    MarkedCase{"More", "{a:1}}", {}}, MarkedCase{"List", "[1]", {}}, MarkedCase{"Nothing", "", {}},
                    MarkedCase{"Deep", "{a:" + std::string(60, '[') + std::string(60, ']') + "}",
                               "{\"a\": " + std::string(60, '[') + std::string(60, ']') + "}"},
                    MarkedCase{"TooDeep", "{a:" + std::string(70, '[') + std::string(70, ']') + "}", {}},
                    MarkedCase{"FarTooDeep", "{a:" + std::string(1 << 20, '['), {}}),
    [](const auto& test) { return test.param.name; });

TEST_P(MarkedArguments, AreReadAsJson) {
  const MarkedCase& c = GetParam();
  const std::optional<std::string> read = json_of_marked_arguments(marked(c.text));
  ASSERT_EQ(read.has_value(), c.want.has_value()) << read.value_or("");
  if (read) EXPECT_EQ(json::parse(*read, nullptr, false), json::parse(*c.want)) << *read;
}

class MarkedCalls : public testing::TestWithParam<ToolCallCase> {};
INSTANTIATE_TEST_SUITE_P(
    Table, MarkedCalls,
    testing::Values(
        ToolCallCase{"One",
                     ToolFormat::gemma4,
                     marked("So.<|tool_call>call:f{a:#}<tool_call|>#}<tool_call|>"),
                     "So.",
                     {{"f", R"({"a":"}<tool_call|>"})"}}},
        ToolCallCase{"Two",
                     ToolFormat::gemma4,
                     "<|tool_call>call:f{}<tool_call|><|tool_call>call:g{b:[1]}<tool_call|>",
                     "",
                     {{"f", "{}"}, {"g", R"({"b":[1]})"}}},
        ToolCallCase{"NoCall", ToolFormat::gemma4, "<|tool_call>say:f{}", "<|tool_call>say:f{}", {}},
        ToolCallCase{"NoArguments",
                     ToolFormat::gemma4,
                     "<|tool_call>call:f{a:b}<tool_call|>!",
                     "<|tool_call>call:f{a:b}<tool_call|>!",
                     {}},
        ToolCallCase{
            "Cut", ToolFormat::gemma4, marked("<|tool_call>call:f{a:#b#"), marked("<|tool_call>call:f{a:#b#"), {}}),
    [](const auto& test) { return test.param.name; });

TEST_P(MarkedCalls, AreReadHoweverTheTextIsParted) { expect_read_however_parted(GetParam()); }

TEST(MarkedGrammarTest, FollowsTheSchema) {
  OutputForm form{.kind = OutputForm::Kind::tool_calls, .choices = {"f"}};
  form.tool_format = ToolFormat::gemma4;
  const auto accepts = [&](const char* schema, const std::string& arguments) {
    form.schemas = {schema};
    return constrain::accepts(form, marked("call:f{" + arguments + "}<tool_call|>"));
  };
  const char* const flat = R"({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": ["string",
      "null"]}, "c": {"type": "array", "items": {"enum": ["x", 2, {"d": "y"}]}}}, "required": ["b"]})";
  for (const char* right : {"a:true,b:#x#,c:[#x#,2,{d:#y#}]", "b:null", "b:#a < b: \"c\"}\n#", "b:##,c:[]"})
    EXPECT_TRUE(accepts(flat, right)) << right;
  for (const char* wrong : {"", "a:true", "a:1,b:null", "b:x", "b:\"x\"", "b:#x", "b:null a:true", "b:null,",
                            "b:null,d:1", "b:#x##", "b:null,c:[#z#]", "b:null,c:[{d:#x#}]", "#b#:null"})
    EXPECT_FALSE(accepts(flat, wrong)) << wrong;
  const char* const inner = R"({"type": "object", "properties": {"a": {"type": "object", "properties":
      {"b": {"type": "string", "maxLength": 2}, "c d": {"type": "integer"}}, "required": ["b"],
      "additionalProperties": {"type": "string", "pattern": "^x"}}}, "required": ["a"]})";
  for (const char* right : {"a:{b:#xy#}", "a:{b:##,#c d#:1}", "a:{b:#x#,e:#xe#}"})
    EXPECT_TRUE(accepts(inner, right)) << right;
  for (const char* wrong : {"a:{b:#xyz#}", "a:{b:#x#,c d:1}", "a:{b:#x#,e:#e#}", "a:{}"})
    EXPECT_FALSE(accepts(inner, wrong)) << wrong;
  EXPECT_TRUE(accepts(R"({"type": "object"})", "any:1,other:{x:null,y:[#z#]}"));
  EXPECT_TRUE(accepts(R"({"type": "object", "properties": {"a": {}}})", "a:{x:{y:[]}}"));
  form.schemas = {R"({"type": "object", "properties": {"a:b": {}}})"};
  EXPECT_NE(constrain::refusal(form).find("'a:b'"), std::string::npos) << constrain::refusal(form);
}

}  // namespace
}  // namespace weft::api
