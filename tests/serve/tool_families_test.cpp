// Tool calls of every family: templates that are recognised, calls that are parsed however the text is parted, and
// grammars of what each writes.
#include <random>
#include <set>

#include "serve/constrained.h"
#include "serve/marked_tokenizer.h"
#include "serve/tool_samples.h"
#include "weft/serve/api/marked_arguments.h"
#include "weft/serve/text_stream.h"

namespace weft::api {
namespace {

using nlohmann::json;

struct Parsed {
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  std::vector<std::string> ids;
  bool operator==(const Parsed&) const = default;
};

std::shared_ptr<const ToolSchemas> sample_schemas() {
  return std::make_shared<ToolSchemas>(ToolSchemas{{"weather", kWeatherSchema}, {"time", kTimeSchema}});
}

Parsed parse(ToolFormat format, std::string_view text, size_t step,
             std::shared_ptr<const ToolSchemas> schemas = sample_schemas()) {
  ToolCallParser parser(format, std::move(schemas));
  Parsed parsed;
  const auto take = [&](const ToolCallParser::Output& output) {
    parsed.content += output.content;
    for (const ToolCall& call : output.calls) {
      parsed.calls.emplace_back(call.name, call.arguments);
      parsed.ids.push_back(call.id);
    }
  };
  for (size_t at = 0; at < text.size(); at += step) take(parser.push(text.substr(at, step)));
  take(parser.finish());
  return parsed;
}

void expect_sample_calls(const ToolSample& sample, const Parsed& parsed) {
  const auto expected = sample_calls(sample.format);
  ASSERT_EQ(parsed.calls.size(), expected.size()) << parsed.content;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(parsed.calls[i].first, expected[i].first);
    EXPECT_EQ(json::parse(parsed.calls[i].second, nullptr, false), expected[i].second) << parsed.calls[i].second;
  }
}

class ToolFamilies : public testing::TestWithParam<ToolSample> {
 protected:
  const ToolSample& sample_ = GetParam();
  const ToolFamily& family_ = tool_family(GetParam().format);
};
INSTANTIATE_TEST_SUITE_P(Table, ToolFamilies, testing::ValuesIn(tool_samples()), sample_name);

TEST_P(ToolFamilies, AreSeenInTheirTemplates) {
  const ChatTemplate chat_template(sample_.jinja, "the test's template");
  const MarkedTokenizer tokenizer(tool_markers(sample_.format));
  EXPECT_EQ(detect_tool_format(chat_template, &tokenizer), sample_.format);
  EXPECT_EQ(detect_tool_format(chat_template), sample_.of_token ? ToolFormat::hermes : sample_.format);
  EXPECT_EQ(parse_tool_format(family_.name), sample_.format);
}

TEST_P(ToolFamilies, AreParsedHoweverTheTextIsParted) {
  for (const size_t step : {size_t(1), size_t(2), size_t(5), sample_.text.size()}) {
    const Parsed parsed = parse(sample_.format, sample_.text, step);
    expect_sample_calls(sample_, parsed);
    EXPECT_EQ(parsed.content, "") << "in steps of " << step;
  }
}

TEST_P(ToolFamilies, TextBeforeCallsIsContent) {
  if (family_.is_whole_answer) GTEST_SKIP() << "calls are the whole answer";
  std::string before = "Let me <see>:\n";
  if (sample_.format == ToolFormat::functionary_v32) before = ">>>all\n" + before;
  if (sample_.format == ToolFormat::harmony)
    before = "<|channel|>analysis<|message|>They ask.<|end|><|start|>assistant<|channel|>commentary<|message|>" +
             before + "<|end|><|start|>assistant";
  for (const size_t step : {size_t(1), sample_.text.size() * 2}) {
    const Parsed parsed = parse(sample_.format, before + sample_.text, step);
    expect_sample_calls(sample_, parsed);
    EXPECT_EQ(parsed.content.substr(0, 13), "Let me <see>:") << "in steps of " << step;
    EXPECT_LE(parsed.content.size(), 14u) << parsed.content;
  }
}

TEST_P(ToolFamilies, WhatIsCutOffStaysText) {
  const std::string& text = sample_.text;
  for (size_t size = 0; size < text.size(); ++size) {
    const Parsed parsed = parse(sample_.format, text.substr(0, size), 3);
    ASSERT_EQ(parsed, parse(sample_.format, text.substr(0, size), 1)) << size;
    ASSERT_LE(parsed.calls.size(), sample_calls(sample_.format).size());
    for (size_t i = 0; i < parsed.calls.size(); ++i)
      EXPECT_EQ(json::parse(parsed.calls[i].second, nullptr, false), sample_calls(sample_.format)[i].second) << size;
    if (parsed.calls.empty()) EXPECT_EQ(parsed.content, text.substr(0, size));
  }
}

// What comes out is the same however a broken text is parted, and a call that comes out has a name and JSON.
TEST_P(ToolFamilies, BrokenCallsAreReadAlikeHoweverTheyAreParted) {
  std::mt19937 random(5);
  const std::vector<std::string> pieces = [&] {
    std::vector<std::string> all{"<", ">", "{", "}", "\"", "[", "]", "\n", "\\", "x", " ", ">>>", "```"};
    for (const char* piece : {family_.mark, family_.open, family_.middle, family_.close, family_.between, family_.end,
                              family_.key_open, family_.value_open, family_.value_close})
      all.emplace_back(piece);
    return all;
  }();
  for (int round = 0; round < 400; ++round) {
    std::string text = sample_.text;
    for (unsigned i = 0; i < 1 + random() % 4; ++i) {
      const size_t at = random() % text.size();
      text.replace(at, random() % std::min<size_t>(8, text.size() - at + 1), pieces[random() % pieces.size()]);
    }
    if (random() % 3 == 0) text += " And so on.\n" + sample_.text;
    const Parsed whole = parse(sample_.format, text, text.size());
    ASSERT_EQ(whole, parse(sample_.format, text, 1)) << text;
    ASSERT_EQ(whole, parse(sample_.format, text, 1 + random() % 16)) << text;
    for (const auto& [name, arguments] : whole.calls) EXPECT_TRUE(json::accept(arguments)) << text;
  }
}

TEST_P(ToolFamilies, AForcedCallBeginsAsTheFamilyDoes) {
  EXPECT_TRUE(sample_.text.starts_with(marker_before(sample_.format)));
  for (const char* name : {"", "weather"}) {
    const std::string beginning = forced_beginning(sample_.format, name);
    EXPECT_TRUE(sample_.text.starts_with(beginning)) << beginning;
  }
}

TEST_P(ToolFamilies, HaveTheGrammarOfTheirCalls) {
  OutputForm form = sample_form(sample_.format);
  const std::string calls = sample_.text.substr(marker_before(sample_.format).size());
  EXPECT_TRUE(constrain::accepts(form, calls));
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = calls;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  EXPECT_FALSE(constrain::accepts(form, changed("weather", "leather")));
  EXPECT_FALSE(constrain::accepts(form, changed("2", "-2")));
  EXPECT_FALSE(constrain::accepts(form, changed("2", "2x")));
  EXPECT_FALSE(constrain::accepts(form, changed("days", "dogs")));
  form.is_parallel = false;
  EXPECT_EQ(constrain::accepts(form, calls), !family_.is_parallel);
}

TEST_P(ToolFamilies, AreConstrainedWhereTheModelBeginsThem) {
  const MarkedTokenizer tokenizer(tool_markers(sample_.format));
  constrain::ConstraintFactory factory(tokenizer, tokenizer.vocab_size(), {*tokenizer.end_of_document()});
  OutputForm form = sample_form(sample_.format);
  form.trigger = call_trigger(sample_.format);
  form.is_whole_answer = family_.is_whole_answer;
  form.may_be_text = form.trigger.empty();
  std::string before = family_.is_whole_answer ? "" : "So be it: ";
  if (sample_.format == ToolFormat::functionary_v32) before = "all\nSo be it: >> ";
  if (sample_.format == ToolFormat::harmony)
    before = "<|channel|>analysis<|message|>So be it<|end|><|start|>assistant";
  const std::vector<int32_t> tokens = tokenizer.encode(before + sample_.text);
  const auto constraint = factory.make(form);
  TextStream stream(tokenizer, {.kept_special = [&] {
                      std::vector<int32_t> kept;
                      for (const std::string& marker : tool_markers(sample_.format))
                        kept.push_back(*tokenizer.find(marker));
                      return kept;
                    }()});
  ToolCallParser parser(sample_.format, sample_schemas());
  if (sample_.format == ToolFormat::functionary_v32) parser.push(family_.mark);  // the template has written it
  Parsed parsed;
  const auto take = [&](const ToolCallParser::Output& output) {
    for (const ToolCall& call : output.calls) parsed.calls.emplace_back(call.name, call.arguments);
  };
  for (const int32_t token : tokens) {
    ASSERT_TRUE(may_come(mask_of(*constraint, tokenizer), token)) << tokenizer.spelling(token);
    constraint->accept(token);
    take(parser.push(stream.push(token)));
  }
  EXPECT_TRUE(may_come(mask_of(*constraint, tokenizer), *tokenizer.end_of_document()));
  take(parser.push(stream.finish()));
  take(parser.finish());
  expect_sample_calls(sample_, parsed);
  // Inside of a text of the last call no control token comes, and no byte that is no text.
  const std::string inside = family_.is_parallel ? "\xC3\xBC" : "Ulm";
  constraint->rewind(
      int64_t(tokens.size()) -
      int64_t(tokenizer.encode((before + sample_.text).substr(0, (before + sample_.text).rfind(inside))).size()));
  const std::vector<uint32_t> mask = mask_of(*constraint, tokenizer);
  const bool is_tagged = family_.style == CallStyle::tagged;
  EXPECT_TRUE(may_come(mask, 'U'));
  for (const int byte : {0xFE, 0xFF, 0x80}) EXPECT_FALSE(may_come(mask, byte)) << byte;
  for (const std::string& marker : tool_markers(sample_.format)) {
    if ((is_tagged && marker == "</arg_value>") || marker == kTextMark) continue;  // ends the text
    EXPECT_FALSE(may_come(mask, *tokenizer.find(marker))) << marker;
  }
}

TEST(ToolFamilyTest, EveryRowHasASample) {
  std::set<ToolFormat> formats;
  for (const ToolSample& sample : tool_samples()) formats.insert(sample.format);
  EXPECT_EQ(formats.size(), tool_families().size());
}

TEST(ToolFamilyTest, TextsBetweenTagsAreWhatTheirSchemaSays) {
  const std::string schema = R"({"type": "object", "properties": {
      "text": {"type": "string"}, "flag": {"type": "boolean"}, "n": {"type": ["integer", "null"]},
      "either": {"anyOf": [{"type": "string"}, {"type": "number"}]}, "list": {"$ref": "#/$defs/l"},
      "word": {"enum": ["1", "2"]}}, "$defs": {"l": {"type": "array"}}})";
  const auto of = [&](const char* name, const char* text) {
    return json::parse(json_of_arguments({{name, text}}, schema)).at(name);
  };
  EXPECT_EQ(of("text", "12"), "12");
  EXPECT_EQ(of("text", " a\n"), " a\n");
  EXPECT_EQ(of("flag", "True"), true);
  EXPECT_EQ(of("flag", "maybe"), "maybe");
  EXPECT_EQ(of("n", "None"), nullptr);
  EXPECT_EQ(of("n", " 7 "), 7);
  EXPECT_EQ(of("n", "1.5"), "1.5");
  EXPECT_EQ(of("either", "1.5"), 1.5);
  EXPECT_EQ(of("either", "1.5.0"), "1.5.0");
  EXPECT_EQ(of("list", "[1, {}]"), json::parse("[1, {}]"));
  EXPECT_EQ(of("word", "1"), "1");
  EXPECT_EQ(of("unknown", "{\"a\": 1}"), json::parse("{\"a\": 1}"));
  EXPECT_EQ(of("unknown", "plain"), "plain");
  EXPECT_EQ(json_of_arguments({{"a", "1"}, {"b", "\xFF\""}, {"a", "2"}}, ""), "{\"a\":2,\"b\":\"\xEF\xBF\xBD\\\"\"}");
}

TEST(ToolFamilyTest, GrammarsOfTagsFollowTheSchema) {
  OutputForm form{.kind = OutputForm::Kind::tool_calls, .text = {}, .choices = {"f"}};
  form.tool_format = ToolFormat::qwen3_coder;
  const auto accepts = [&](const char* schema, const std::string& name, const std::string& value) {
    form.schemas = {schema};
    const std::string tag = name.empty() ? "" : "<parameter=" + name + ">\n" + value + "\n</parameter>\n";
    return constrain::accepts(form, "<function=f>\n" + tag + "</function>\n</tool_call>");
  };
  const char* const schema = R"({"type": "object", "properties": {"a": {"type": "string", "pattern": "^[xy]+$"},
      "b": {"enum": ["red", 3]}, "c": {"type": ["boolean", "null"]}, "d": {"anyOf": [{"type": "integer"},
      {"$ref": "#/$defs/s"}]}, "e": {"type": "string"}}, "$defs": {"s": {"type": "string", "maxLength": 2}}})";
  EXPECT_TRUE(accepts(schema, "", ""));
  EXPECT_TRUE(accepts(schema, "a", "xyx"));
  EXPECT_FALSE(accepts(schema, "a", "xyz"));
  EXPECT_TRUE(accepts(schema, "b", "red"));
  EXPECT_TRUE(accepts(schema, "b", "3"));
  EXPECT_FALSE(accepts(schema, "b", "\"red\""));
  EXPECT_TRUE(accepts(schema, "c", "null"));
  EXPECT_FALSE(accepts(schema, "c", "True"));
  EXPECT_TRUE(accepts(schema, "d", "1234"));
  EXPECT_TRUE(accepts(schema, "d", "ab"));
  EXPECT_FALSE(accepts(schema, "d", "abc"));
  EXPECT_TRUE(accepts(schema, "e", "a\n<b> \"c\"\n"));
  EXPECT_FALSE(accepts(schema, "e", "a</parameter>b"));
  EXPECT_FALSE(accepts(schema, "f", "1"));
  EXPECT_TRUE(accepts(R"({"type": "object"})", "anything", "at all"));
  form.schemas = {R"({"type": "object", "minProperties": 1})"};
  EXPECT_NE(constrain::refusal(form).find("tool f: #: minProperties"), std::string::npos) << constrain::refusal(form);
  form.schemas = {R"({"type": "object", "properties": {"a>b": {}}})"};
  EXPECT_NE(constrain::refusal(form).find("'a>b'"), std::string::npos) << constrain::refusal(form);
}

TEST(ToolFamilyTest, IdsOfCallsAreTheModels) {
  const auto samples = tool_samples();
  for (const ToolSample& sample : samples) {
    const Parsed parsed = parse(sample.format, sample.text, 4);
    const bool has_ids = sample.format == ToolFormat::kimi_k2;
    EXPECT_EQ(parsed.ids[0], has_ids ? "functions.weather:0" : "") << tool_family(sample.format).name;
  }
  const Parsed mistral = parse(ToolFormat::mistral_args, "[TOOL_CALLS]weather[CALL_ID]abc123xyz[ARGS]{}", 1);
  ASSERT_EQ(mistral.calls.size(), 1u);
  EXPECT_EQ(mistral.calls[0].first, "weather");
  EXPECT_EQ(mistral.ids[0], "abc123xyz");
}

TEST(ToolFamilyTest, PartsOfHarmonyAreContentOrThoughts) {
  const Parsed parsed =
      parse(ToolFormat::harmony,
            "<|channel|>analysis<|message|>2 < 3<|end|><|start|>assistant<|channel|>final<|message|>Two "
            "is less.\nSo there.",
            1);
  EXPECT_EQ(parsed.content, "Two is less.\nSo there.");
  const Parsed other =
      parse(ToolFormat::harmony,
            "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"x\": 1}<|call|>", 3);
  ASSERT_EQ(other.calls.size(), 1u) << other.content;
  EXPECT_EQ(other.calls[0], std::pair(std::string("f"), std::string("{\"x\": 1}")));
  EXPECT_EQ(other.content, "");
}

TEST(ToolFamilyTest, GlmMayLeaveOutLines) {
  const std::string text =
      "<tool_call>weather<arg_key>city</arg_key><arg_value>Ulm</arg_value><arg_key>days</arg_key>"
      "<arg_value>2</arg_value></tool_call>";
  const Parsed parsed = parse(ToolFormat::glm, text, 1);
  ASSERT_EQ(parsed.calls.size(), 1u);
  EXPECT_EQ(json::parse(parsed.calls[0].second), json::parse(kWeather));
  EXPECT_TRUE(constrain::accepts(sample_form(ToolFormat::glm), text.substr(std::string("<tool_call>").size())));
}

TEST(ToolFamilyTest, LongArgumentsAreReadAsTheyCome) {
  // A megabyte in an argument, byte by byte; what is more is text.
  for (const ToolFormat format : {ToolFormat::hermes, ToolFormat::qwen3_coder}) {
    const bool is_json = format == ToolFormat::hermes;
    const std::string begin = is_json ? "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \""
                                      : "<tool_call>\n<function=weather>\n<parameter=city>\n";
    const std::string end = is_json ? "\"}}\n</tool_call>" : "\n</parameter>\n</function>\n</tool_call>";
    EXPECT_EQ(parse(format, begin + std::string(1 << 19, is_json ? '}' : '<') + end, 1).calls.size(), 1u);
    EXPECT_EQ(parse(format, begin + std::string((1 << 20) + 1, 'x') + end, 4096).calls.size(), 0u);
  }
}

}  // namespace
}  // namespace weft::api
