// Reasoning of every family: templates that are recognised, thoughts that are parted from the content however the
// text is parted, and forms that begin behind them.
#include <nlohmann/json.hpp>

#include "serve/constrained.h"
#include "serve/marked_tokenizer.h"
#include "weft/serve/api/reasoning_parser.h"
#include "weft/serve/api/thinking_choice.h"

namespace weft::api {
namespace {

using Place = ReasoningPlace;

struct Parted {
  std::string reasoning, content;
  bool operator==(const Parted&) const = default;
};

Parted part(ReasoningFormat format, Place place, std::string_view text, size_t step) {
  ReasoningParser parser(format, place);
  Parted parted;
  const auto take = [&](const ReasoningParser::Output& output) {
    parted.reasoning += output.reasoning;
    parted.content += output.content;
  };
  for (size_t at = 0; at < text.size(); at += step) take(parser.push(text.substr(at, step)));
  take(parser.finish());
  return parted;
}

struct ReasoningCase {
  const char* name;
  ReasoningFormat format;
  Place place;
  std::string text;
  Parted parted;
};

class ReasoningCases : public testing::TestWithParam<ReasoningCase> {};
using Format = ReasoningFormat;
INSTANTIATE_TEST_SUITE_P(
    Table, ReasoningCases,
    testing::Values(
        ReasoningCase{
            "Think", Format::think, Place::before, "<think>\nHm. 1 < 2\n</think>\n\nYes.\n", {"Hm. 1 < 2", "Yes.\n"}},
        ReasoningCase{"ThinkBegun", Format::think, Place::inside, "Hm.\n\nSo.</think>Yes.", {"Hm.\n\nSo.", "Yes."}},
        ReasoningCase{"ThinkBegunTwice", Format::think, Place::inside, "\n<think>\nHm.</think>Yes.", {"Hm.", "Yes."}},
        ReasoningCase{"ThinkBehindALine", Format::think, Place::before, "\n<think>Hm.</think>Yes.", {"Hm.", "Yes."}},
        ReasoningCase{"ThinkOfNothing", Format::think, Place::before, "<think>\n\n</think>\n\nYes.", {"", "Yes."}},
        ReasoningCase{"ThinkWithoutEnd", Format::think, Place::inside, "Hm.  </thin", {"Hm.  </thin", ""}},
        ReasoningCase{"ThinkCutInTheMark", Format::think, Place::before, "<thi", {"", "<thi"}},
        ReasoningCase{
            "ThinkNot", Format::think, Place::before, " Yes: <think>no</think>", {"", " Yes: <think>no</think>"}},
        ReasoningCase{"ThinkLooksLike", Format::think, Place::before, "<thinks> no", {"", "<thinks> no"}},
        ReasoningCase{
            "ThinkLikeTheEnd", Format::think, Place::inside, "a </think b </</think>c", {"a </think b </", "c"}},
        ReasoningCase{"ThinkTwice",
                      Format::think,
                      Place::before,
                      "<think>a</think>b<think>c</think>",
                      {"a", "b<think>c</think>"}},
        ReasoningCase{"ThinkOnly", Format::think, Place::inside, "a</think>\n", {"a", ""}},
        ReasoningCase{"Nothing", Format::think, Place::before, "", {"", ""}},
        ReasoningCase{
            "Magistral", Format::mistral, Place::before, "[THINK]a [b][/THINK]c[/THINK]", {"a [b]", "c[/THINK]"}},
        ReasoningCase{"SeedOss", Format::seed_oss, Place::before, "<seed:think>\na\n</seed:think>\nb", {"a", "b"}},
        ReasoningCase{"Command",
                      Format::command,
                      Place::before,
                      "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>b",
                      {"a", "b"}},
        ReasoningCase{"CommandCalls",
                      Format::command,
                      Place::inside,
                      "a<|END_THINKING|><|START_ACTION|>[]",
                      {"a", "<|START_ACTION|>[]"}},
        ReasoningCase{"Granite",
                      Format::granite,
                      Place::before,
                      "Here is my thought process:\n a\n\nHere is my response:\n b",
                      {"a", "b"}},
        ReasoningCase{
            "Gemma4", Format::gemma4, Place::before, "<|channel>thought\na < b\n<channel|>b", {"a < b", "b"}},
        ReasoningCase{"Gemma4Not", Format::gemma4, Place::before, "<|channel>b", {"", "<|channel>b"}},
        ReasoningCase{
            "GraniteNot", Format::granite, Place::before, "Here is my answer.", {"", "Here is my answer."}}),
    [](const auto& test) { return test.param.name; });

TEST_P(ReasoningCases, ArePartedHoweverTheTextIsParted) {
  const ReasoningCase& c = GetParam();
  for (const size_t step : {size_t(1), size_t(2), size_t(5), c.text.size() + 1}) {
    const Parted parted = part(c.format, c.place, c.text, step);
    EXPECT_EQ(parted.reasoning, c.parted.reasoning) << "in steps of " << step;
    EXPECT_EQ(parted.content, c.parted.content) << "in steps of " << step;
  }
}

TEST(ReasoningParserTest, TellsThoughtsAtOnce) {
  ReasoningParser parser(Format::think, Place::inside);
  EXPECT_EQ(parser.push("a b").reasoning, "a b");
  EXPECT_EQ(parser.push(" <").reasoning, "");
  EXPECT_EQ(parser.push("c").reasoning, " <c");
  EXPECT_TRUE(parser.is_inside());
  EXPECT_EQ(parser.push("</think>d").content, "d");
  EXPECT_FALSE(parser.is_inside());
}

struct TemplateCase {
  const char* name;
  std::string jinja;
  Format format;
  std::string off, plain;  // the end of the prompt with thinking turned off, and without a word of it
  Place off_place, plain_place;
};

std::string with_prompt(const std::string& earlier, const std::string& prompt) {
  return "{% for m in messages %}<{{ m.role }}>" + earlier +
         "{{ m.content }}{% endfor %}{% if add_generation_prompt %}" + prompt + "{% endif %}";
}

class ReasoningTemplates : public testing::TestWithParam<TemplateCase> {};
INSTANTIATE_TEST_SUITE_P(
    Table, ReasoningTemplates,
    testing::Values(
        TemplateCase{
            "Qwen3",
            with_prompt(
                "{% if m.reasoning_content is string %}<think>\n{{ m.reasoning_content }}\n</think>{% endif %}",
                "<a>{% if enable_thinking is defined and enable_thinking is false %}{{ "
                "'<think>\n\n</think>\n\n' }}{% endif %}"),
            Format::think, "</think>\n\n", "<a>", Place::outside, Place::before},
        TemplateCase{"Qwen3Thinking", with_prompt("", "{{ '<a><think>\n' }}"), Format::think, "<think>\n",
                     "<think>\n", Place::inside, Place::inside},
        TemplateCase{"DeepSeekV31", with_prompt("", "{% if thinking %}<think>{% else %}</think>{% endif %}"),
                     Format::think, "</think>", "</think>", Place::outside, Place::outside},
        TemplateCase{
            "SeedOss",
            with_prompt("{% if m.reasoning_content %}<seed:think>{{ m.reasoning_content }}</seed:think>{% endif %}",
                        "{% if thinking_budget == 0 %}<seed:think>\nnone</seed:think>{% endif %}"),
            Format::seed_oss, "</seed:think>", "!", Place::outside, Place::before},
        TemplateCase{"Magistral",
                     with_prompt("{% if m.role == 'user' %}Think in [THINK]here[/THINK].{% endif %}", "[/INST]"),
                     Format::mistral, "[/INST]", "[/INST]", Place::before, Place::before},
        TemplateCase{"CommandA",
                     with_prompt("",
                                 "<|START_THINKING|>{% if reasoning is defined and not reasoning %}"
                                 "<|END_THINKING|>{% endif %}"),
                     Format::command, "<|END_THINKING|>", "<|START_THINKING|>", Place::outside, Place::inside},
        TemplateCase{
            "Granite",
            with_prompt("{% if thinking %}Write your thoughts after 'Here is my thought process:'{% endif %}", "<a>"),
            Format::granite, "<a>", "<a>", Place::before, Place::before},
        TemplateCase{"Gemma4",
                     with_prompt("",
                                 "<a>{% if not enable_thinking | default(false) %}{{ "
                                 "'<|channel>thought\n<channel|>' }}{% endif %}"),
                     Format::gemma4, "<channel|>", "<channel|>", Place::outside, Place::outside},
        TemplateCase{"NoThoughts", with_prompt("", "<a>"), Format::none, "<a>", "<a>", Place::outside,
                     Place::outside}),
    [](const auto& test) { return test.param.name; });

TEST_P(ReasoningTemplates, AreRecognisedAndTurnedOff) {
  const TemplateCase& c = GetParam();
  const ChatTemplate chat_template(c.jinja, "the test's template");
  EXPECT_EQ(detect_reasoning_format(chat_template, nullptr, ToolFormat::hermes), c.format);
  EXPECT_EQ(detect_reasoning_format(chat_template, nullptr, ToolFormat::harmony), Format::harmony);
  const auto messages = jinja::Value::from_json(
      nlohmann::ordered_json::array({{{"role", "user"}, {"content", "1 </think> 2 <think> !"}}}));
  ChatInput input{.messages = messages, .add_generation_prompt = true};
  const std::string plain = chat_template.render(input);
  EXPECT_TRUE(plain.ends_with(c.plain)) << plain;
  EXPECT_EQ(reasoning_place(c.format, plain), c.plain_place);
  input.variables = thinking_variables({.is_on = false, .effort = {}, .budget = {}}, c.format);
  const std::string off = chat_template.render(input);
  EXPECT_TRUE(off.ends_with(c.off)) << off;
  EXPECT_EQ(reasoning_place(c.format, off), c.off_place);
}

TEST(ReasoningFormatTest, IsSeenInTokensWhereTheTemplateShowsNothing) {
  const ChatTemplate plain("{% for m in messages %}{{ m.content }}{% endfor %}", "a template");
  for (const ReasoningFamily& family : reasoning_families()) {
    EXPECT_EQ(parse_reasoning_format(family.name), family.format);
    EXPECT_NE(reasoning_format_names().find(family.name), std::string::npos);
    if (!family.token) continue;
    const MarkedTokenizer tokenizer({family.token, family.close});
    EXPECT_EQ(detect_reasoning_format(plain, &tokenizer, ToolFormat::hermes), family.format);
  }
  EXPECT_EQ(parse_reasoning_format("thoughtful"), std::nullopt);
}

OutputForm yes_or_no(Format format, Place place) {
  OutputForm form{.kind = OutputForm::Kind::choice, .choices = {"yes", "no"}};
  form.reasoning_format = format, form.reasoning = place;
  return form;
}

struct FormCase {
  const char* name;
  Format format;
  Place place;
  std::string text;
  bool is_accepted;
};
class ReasoningForms : public testing::TestWithParam<FormCase> {};
INSTANTIATE_TEST_SUITE_P(
    Table, ReasoningForms,
    testing::Values(
        FormCase{"Behind", Format::think, Place::inside, "Yes? \xC3\xBC <no>\n</think>\n\nyes", true},
        FormCase{"WithoutAMark", Format::think, Place::inside, "yes", false},
        FormCase{"OtherContent", Format::think, Place::inside, "a</think>maybe", false},
        FormCase{"Without", Format::think, Place::before, "no", true},
        FormCase{"Begun", Format::think, Place::before, "<think>\na\n</think>\n\nno", true},
        FormCase{"NotEnded", Format::think, Place::before, "<think>no", false},
        FormCase{"NotBegun", Format::think, Place::before, "a</think>no", false},
        FormCase{"Off", Format::think, Place::outside, "no", true},
        FormCase{"OffAndBegun", Format::think, Place::outside, "<think></think>no", false},
        FormCase{"Granite", Format::granite, Place::before, "Here is my thought process: a Here is my response: yes",
                 true},
        FormCase{"Gemma4", Format::gemma4, Place::before, "<|channel>thought\na<channel|>yes", true},
        FormCase{"Command", Format::command, Place::inside, "a<|END_THINKING|><|START_RESPONSE|>yes", true},
        FormCase{"Harmony", Format::harmony, Place::before,
                 "<|channel|>analysis<|message|>a < b<|end|><|start|>assistant<|channel|>final<|message|>yes", true},
        FormCase{"HarmonyAtOnce", Format::harmony, Place::before, "<|channel|>final<|message|>no", true},
        FormCase{"HarmonyOutside", Format::harmony, Place::before, "no", false}),
    [](const auto& test) { return test.param.name; });

TEST_P(ReasoningForms, BeginBehindTheThoughts) {
  const FormCase& c = GetParam();
  EXPECT_EQ(constrain::accepts(yes_or_no(c.format, c.place), c.text), c.is_accepted);
}

TEST(ReasoningFormTest, EveryKindOfFormMayComeBehind) {
  using Kind = OutputForm::Kind;
  const auto accepts = [](OutputForm form, const std::string& text) {
    form.reasoning_format = Format::think, form.reasoning = Place::inside;
    return constrain::accepts(form, "x</think>\n\n" + text) && !constrain::accepts(form, text);
  };
  EXPECT_TRUE(accepts({.kind = Kind::json_object}, "{}"));
  EXPECT_TRUE(accepts({.kind = Kind::json_schema, .text = R"({"type": "integer"})"}, "7"));
  EXPECT_TRUE(accepts({.kind = Kind::regex, .text = "a+"}, "aa"));
  EXPECT_TRUE(accepts({.kind = Kind::grammar, .text = "root ::= \"b\" other\nother ::= [cd]"}, "bd"));
  OutputForm calls{.kind = Kind::tool_calls, .choices = {"f"}, .schemas = {R"({"type": "object"})"}};
  calls.has_marker = true;
  EXPECT_TRUE(accepts(calls, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"));
}

TEST(ReasoningFormTest, MarksMayBeControlTokensAndThoughtsEndBeforeTheAnswerDoes) {
  const MarkedTokenizer tokenizer({"<think>", "</think>"});
  constrain::ConstraintFactory factory(tokenizer, tokenizer.vocab_size(), {*tokenizer.end_of_document()});
  const auto constraint = factory.make(yes_or_no(Format::think, Place::before));
  const int32_t end = *tokenizer.end_of_document();
  const auto say = [&](const std::string& text) {
    for (const int32_t token : tokenizer.encode(text)) {
      ASSERT_TRUE(may_come(mask_of(*constraint, tokenizer), token)) << tokenizer.spelling(token);
      constraint->accept(token);
    }
  };
  EXPECT_FALSE(may_come(mask_of(*constraint, tokenizer), 'a'));
  say("<think>a");
  EXPECT_FALSE(may_come(mask_of(*constraint, tokenizer), end));
  EXPECT_FALSE(may_come(mask_of(*constraint, tokenizer), *tokenizer.find("<think>")));
  say("bc</think>\n");
  EXPECT_FALSE(may_come(mask_of(*constraint, tokenizer), 'a'));
  constraint->rewind(3);
  EXPECT_TRUE(may_come(mask_of(*constraint, tokenizer), 'a'));
  say("</think>yes");
  EXPECT_TRUE(may_come(mask_of(*constraint, tokenizer), end));
}

TEST(ReasoningFormTest, LongThoughtsCostNoMoreThanShortOnes) {
  const MarkedTokenizer tokenizer({});
  constrain::ConstraintFactory factory(tokenizer, tokenizer.vocab_size(), {*tokenizer.end_of_document()});
  const auto constraint = factory.make(yes_or_no(Format::think, Place::inside));
  const auto say = [&](const std::string& text) {
    for (const int32_t token : tokenizer.encode(text)) {
      ASSERT_TRUE(may_come(mask_of(*constraint, tokenizer), token));
      constraint->accept(token);
    }
  };
  say("a < b </thin> \xC3\xBC ");
  const size_t masks = factory.masks().num_cached();
  for (int i = 0; i < 500; ++i) say("a < b </thin> \xC3\xBC ");
  EXPECT_EQ(factory.masks().num_cached(), masks);
  say("</think>yes");
}

TEST(ReasoningFormTest, ACallAmongThoughtsIsNone) {
  for (const bool is_token : {true, false}) {
    const MarkedTokenizer tokenizer(is_token ? std::vector<std::string>{"<think>", "</think>", "<tool_call>"}
                                             : std::vector<std::string>{});
    constrain::ConstraintFactory factory(tokenizer, tokenizer.vocab_size(), {*tokenizer.end_of_document()});
    for (const Place place : {Place::inside, Place::before}) {
      OutputForm form{.kind = OutputForm::Kind::tool_calls, .choices = {"f"}, .schemas = {R"({"type": "object"})"}};
      form.trigger = call_trigger(form.tool_format);
      form.reasoning_format = Format::think, form.reasoning = place;
      const auto constraint = factory.make(form);
      int64_t num_tokens = 0;
      const auto say = [&](const std::string& text) {
        for (const int32_t token : tokenizer.encode(text)) constraint->accept(token), ++num_tokens;
      };
      const auto is_free = [&] { return may_come(mask_of(*constraint, tokenizer), 'x'); };
      say(place == Place::inside ? "a" : " \n<think>a");
      say("<tool_call>");
      EXPECT_TRUE(is_free());
      const int64_t thoughts = num_tokens;
      say("b</think>\n<tool_call>");
      EXPECT_FALSE(is_free());
      constraint->rewind(std::exchange(num_tokens, thoughts) - thoughts);
      say("<tool_call></think> So: ");
      EXPECT_TRUE(is_free());
      say("<tool_call>{\"name\": \"f");
      EXPECT_FALSE(is_free());
      if (place != Place::before) continue;
      const auto other = factory.make(form);  // that does not think
      for (const int32_t token : tokenizer.encode("<tool_call>")) other->accept(token);
      EXPECT_FALSE(may_come(mask_of(*other, tokenizer), 'x'));
    }
  }
}

}  // namespace
}  // namespace weft::api
