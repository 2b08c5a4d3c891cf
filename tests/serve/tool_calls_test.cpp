// Tool calls in the formats of common templates, wherever the text is parted.
#include "weft/serve/api/tool_calls.h"

#include "serve/tool_call_cases.h"

namespace weft::api {
namespace {

class ToolCalls : public testing::TestWithParam<ToolCallCase> {};
INSTANTIATE_TEST_SUITE_P(
    Formats, ToolCalls,
    testing::Values(
        ToolCallCase{"HermesOne",
                     ToolFormat::hermes,
                     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>",
                     "",
                     {{"f", R"({"x":1})"}}},
        ToolCallCase{"HermesBehindText",
                     ToolFormat::hermes,
                     "Let me see. <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
                     "Let me see.",
                     {{"f", "{}"}}},
        ToolCallCase{
            "HermesTwo",
            ToolFormat::hermes,
            "<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"b\", "
            "\"arguments\": {\"s\": \"</x>\"}}\n</tool_call>",
            "",
            {{"a", "{}"}, {"b", R"({"s":"</x>"})"}}},
        ToolCallCase{"HermesUnclosed",
                     ToolFormat::hermes,
                     "<tool_call>{\"name\": \"f\", \"arguments\": {}}",
                     "",
                     {{"f", "{}"}}},
        ToolCallCase{"HermesCutInItsClose",
                     ToolFormat::hermes,
                     "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_ca",
                     "",
                     {{"f", "{}"}}},
        ToolCallCase{"HermesOtherTagBehindIt",
                     ToolFormat::hermes,
                     "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_box",
                     "\n</tool_box",
                     {{"f", "{}"}}},
        ToolCallCase{
            "HermesBroken", ToolFormat::hermes, "<tool_call>{oops</tool_call>", "<tool_call>{oops</tool_call>", {}},
        ToolCallCase{
            "HermesPlain", ToolFormat::hermes, "1 < 2 and <tool is no call", "1 < 2 and <tool is no call", {}},
        ToolCallCase{
            "LlamaOne", ToolFormat::llama, R"({"name": "f", "parameters": {"x": "y"}})", "", {{"f", R"({"x":"y"})"}}},
        ToolCallCase{
            "LlamaTagged", ToolFormat::llama, R"(<|python_tag|>{"name": "f", "parameters": {}})", "", {{"f", "{}"}}},
        ToolCallCase{"LlamaTwo",
                     ToolFormat::llama,
                     R"({"name": "a", "parameters": {"t": "x;y"}}; {"name": "b", "parameters": {}})",
                     "",
                     {{"a", R"({"t":"x;y"})"}, {"b", "{}"}}},
        ToolCallCase{"LlamaText", ToolFormat::llama, "It is sunny; {really}.", "It is sunny; {really}.", {}},
        ToolCallCase{"LlamaOtherJson", ToolFormat::llama, R"({"temperature": 20})", R"({"temperature": 20})", {}},
        ToolCallCase{"MistralList",
                     ToolFormat::mistral,
                     R"([TOOL_CALLS][{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": {}}])",
                     "",
                     {{"a", R"({"x":1})"}, {"b", "{}"}}},
        ToolCallCase{"MistralArgs",
                     ToolFormat::mistral,
                     R"([TOOL_CALLS]f[ARGS]{"x": 1}[TOOL_CALLS]g[ARGS]{})",
                     "",
                     {{"f", R"({"x": 1})"}, {"g", "{}"}}},
        ToolCallCase{"MistralBehindText",
                     ToolFormat::mistral,
                     R"(So: [TOOL_CALLS][{"name": "a", "arguments": {}}])",
                     "So:",
                     {{"a", "{}"}}},
        ToolCallCase{"MistralText", ToolFormat::mistral, "see [TOOL_BOX]", "see [TOOL_BOX]", {}}),
    [](const auto& test) { return test.param.name; });

TEST_P(ToolCalls, AreParsedHoweverTheTextIsParted) { expect_read_however_parted(GetParam()); }

TEST(ToolCallParserTest, TextComesAtOnce) {
  ToolCallParser parser(ToolFormat::hermes);
  EXPECT_EQ(parser.push("Hello <").content, "Hello");
  EXPECT_EQ(parser.push("b>").content, " <b>");
}

TEST(ToolFormatTest, IsSeenInWhatTheTemplateWrites) {
  const auto detect = [](const char* text) { return detect_tool_format(ChatTemplate(text, "a template")); };
  EXPECT_EQ(detect("{% for m in messages %}{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}{% "
                   "endfor %}{% endfor %}"),
            ToolFormat::mistral);
  EXPECT_EQ(detect("{% for m in messages %}{% for c in m.tool_calls or [] %}{\"name\": \"f\", \"parameters\": {{ "
                   "c.function.arguments | tojson }}}{% endfor %}{% endfor %}"),
            ToolFormat::llama);
  EXPECT_EQ(detect("{% for m in messages %}{{ m.content }}{% endfor %}"), ToolFormat::hermes);
}

}  // namespace
}  // namespace weft::api
