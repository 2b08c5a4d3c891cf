// Chat templates: conversations give what jinja2 gives; templates are found where Hugging Face puts them; answers are
// found in what is written.
#include "weft/text/chat_template.h"

#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "support/message_of.h"
#include "weft/base/json.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
using jinja::Value;

const std::string kData = WEFT_SOURCE_DIR "/tests/text/data/";

std::string template_text(const std::string& name) { return read_file(kData + "chat_templates/" + name, 1 << 20); }

Value values(std::string_view json) { return Value::from_json(parse_ordered_json(json, "test")); }

Value chat(std::initializer_list<std::pair<std::string, std::string>> messages) {
  std::vector<Value> list;
  for (const auto& [role, content] : messages) list.push_back(Value::dict({{"role", role}, {"content", content}}));
  return Value::list(std::move(list));
}

TEST(ChatTemplate, ConversationsGiveWhatJinja2Gives) {
  const std::string path = kData + "chat_templates.golden.json";
  const Json golden = parse_ordered_json(read_file(path, 1 << 20), path);
  ChatVariables tokens;
  for (const auto& [name, token] : golden["tokens"].items()) tokens.emplace_back(name, token.get<std::string>());
  EXPECT_GT(golden["cases"].size(), 200u);
  for (const Json& row : golden["cases"]) {
    const auto name = row["template"].get<std::string>();
    const std::string what = name + ", " + row["chat"].dump() + ", " + row["input"].dump();
    const ChatTemplate parsed(template_text(name), name, tokens);
    ChatInput input{.messages = Value::from_json(golden["chats"][row["chat"].get<std::string>()])};
    for (const auto& [key, value] : golden["inputs"][row["input"].get<std::string>()].items()) {
      if (key == "tools") {
        input.tools = Value::from_json(value);
      } else if (key == "documents") {
        input.documents = Value::from_json(value);
      } else if (key == "add_generation_prompt") {
        input.add_generation_prompt = value.get<bool>();
      } else {
        input.variables.emplace_back(key, Value::from_json(value));
      }
    }
    if (row.contains("fails")) {
      EXPECT_THROW(parsed.render(input), Error) << what;
    } else {
      EXPECT_EQ(parsed.render(input), row["text"].get<std::string>()) << what;
    }
  }
}

TEST(ChatTemplate, IsFoundInAFolder) {
  const TemporaryFolder folder;
  const ChatInput input{.messages = chat({{"user", "Hi"}})};
  const auto found = [&] { return ChatTemplate::find_text(folder.path()); };
  const auto rendered = [&](const ChatInput& of) { return ChatTemplate(found().value()).render(of); };
  EXPECT_FALSE(found());

  const auto write = [&](std::string_view name, std::string_view text) {
    write_file_atomically(FileSystem::real(), folder / name, text);
  };
  write("tokenizer_config.json",
        R"({"eos_token": {"content": "</s>", "lstrip": false}, "bos_token": "<s>", "x_token": null})");
  EXPECT_FALSE(found());
  write("tokenizer_config.json",
        R"({"eos_token": {"content": "</s>", "lstrip": false}, "bos_token": "<s>", "x_token": null,
            "chat_template": "{{ bos_token ~ messages[0].content ~ eos_token }}"})");
  EXPECT_EQ(rendered(input), "<s>Hi</s>");

  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain{{ tools is none }}"},
                                                       {"name": "tool_use", "template": "tools{{ tools|length }}"}]})");
  ChatInput with_tools = input;
  with_tools.tools = values(R"([{"name": "f"}])");
  EXPECT_EQ(rendered(input), "plainTrue");
  EXPECT_EQ(rendered(with_tools), "tools1");

  write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "r"}]})");
  EXPECT_FALSE(found());
  write("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_NE(message_of(found).find("chat_template must be"), std::string::npos);
  write("tokenizer_config.json", fmt::format(R"({{"chat_template": "{}"}})", std::string((1 << 20) + 1, 'x')));
  EXPECT_NE(message_of(found).find("at most 1048576"), std::string::npos);

  write("tokenizer_config.json", R"({"eos_token": "</s>", "chat_template": "old"})");
  write("chat_template.jinja", "new\n{{ messages[0].content ~ eos_token }}\n");
  EXPECT_EQ(rendered(input), "new\nHi</s>");
  write("chat_template.jinja", "\n{% if %}");
  EXPECT_EQ(message_of([&] { rendered(input); }).find(folder / "chat_template.jinja" + ", line 2: "), 0u);
}

TEST(ChatTemplate, VariablesOfTheCallWin) {
  const ChatTemplate parsed("{{ bos_token }}{{ enable_thinking }}", "t", {{"bos_token", "<s>"}});
  const ChatInput input{.messages = chat({}), .variables = {{"enable_thinking", true}, {"bos_token", "!"}}};
  EXPECT_EQ(parsed.render(input), "!True");
}

TEST(ChatTemplate, JsonKeepsTheOrderOfItsKeys) {
  const ChatTemplate parsed("{{ tools[0]|tojson }}", "t");
  const ChatInput input{.messages = chat({}),
                        .tools = values(R"([{"type": "function", "function": {"z": 1, "a": 2}}])")};
  EXPECT_EQ(parsed.render(input), R"({"type": "function", "function": {"z": 1, "a": 2}})");
}

// The parts of a text that the spans name.
std::vector<std::string> answers_of(const RenderedChat& rendered) {
  std::vector<std::string> answers;
  for (const jinja::TextSpan& span : rendered.answers) {
    answers.push_back(rendered.text.substr(span.begin, span.end - span.begin));
  }
  return answers;
}

struct Answers {
  std::string name;
  std::vector<std::string> expected;
};
class ChatAnswersTest : public testing::TestWithParam<Answers> {};
INSTANTIATE_TEST_SUITE_P(Templates, ChatAnswersTest,
                         testing::Values(Answers{"chatml", {"Wörld.<|im_end|>\n", "Bye.<|im_end|>\n"}},
                                         Answers{"inst_with_system", {" Wörld. </s>", " Bye. </s>"}},
                                         Answers{"headers_with_tools", {"Wörld.<|eot|>", "Bye.<|eot|>"}},
                                         Answers{"turns_of_parts", {"Wörld.</turn>\n", "Bye.</turn>\n"}},
                                         Answers{"roles_on_lines", {"Wörld.</s>\n", "Bye.</s>\n"}},
                                         Answers{"marked_answers", {"Wörld.</s>", "Bye.</s>"}}),
                         [](const auto& test) { return test.param.name; });

TEST_P(ChatAnswersTest, AreFound) {
  const ChatTemplate parsed(template_text(GetParam().name + ".jinja"), GetParam().name,
                            {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  const Value messages = chat({{"user", "Hello"}, {"assistant", "Wörld."}, {"user", "And?"}, {"assistant", "Bye."}});
  const RenderedChat rendered = parsed.render_with_answers({.messages = messages});
  EXPECT_EQ(answers_of(rendered), GetParam().expected) << rendered.text;
  EXPECT_EQ(rendered.text, parsed.render({.messages = messages}));
}

TEST(ChatTemplate, RefusesToGuessWhereAnswersAre) {
  // The last answer is written with its thoughts, earlier ones without.
  const ChatTemplate parsed(template_text("thinking.jinja"), "thinking");
  const Value once = chat({{"user", "Q"}, {"assistant", "<think>\nhm\n</think>\n\nA"}});
  EXPECT_EQ(answers_of(parsed.render_with_answers({.messages = once})),
            (std::vector<std::string>{"<think>\nhm\n</think>\n\nA<|im_end|>\n"}));
  const Value twice =
      chat({{"user", "Q"}, {"assistant", "<think>\nhm\n</think>\n\nA"}, {"user", "R"}, {"assistant", "B"}});
  EXPECT_NE(
      message_of([&] { parsed.render_with_answers({.messages = twice}); }).find("message 2 is written otherwise"),
      std::string::npos);
}

TEST(ChatTemplate, LargeConversationsAreRendered) {
  std::vector<Value> messages;
  for (int i = 0; i < 2000; ++i) {
    messages.push_back(Value::dict({{"role", i % 2 ? "assistant" : "user"}, {"content", std::string(10'000, 'x')}}));
  }
  const ChatTemplate parsed(template_text("chatml.jinja"), "chatml");
  EXPECT_GT(parsed.render({.messages = Value::list(std::move(messages))}).size(), 20'000'000u);
}

}  // namespace
}  // namespace weft
