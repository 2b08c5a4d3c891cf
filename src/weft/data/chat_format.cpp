// ChatFormat: what a template writes, cut where answers begin and end.
#include "weft/data/chat_format.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft {
namespace {

void add(std::vector<ChatPart>& parts, std::string_view text, bool is_answer) {
  if (!text.empty()) parts.push_back({std::string(text), is_answer});
}

std::string heading(const std::string& role) {
  return role == "assistant" ? "### Assistant:\n"
         : role == "system"  ? "### System:\n"
         : role == "user"    ? "### User:\n"
                             : "### Tool:\n";
}

std::vector<ChatPart> plain_parts(const InstructExample& example) {
  std::vector<ChatPart> parts;
  for (const ChatMessage& m : example.messages) {
    if (!example.is_plain) add(parts, (parts.empty() ? "" : "\n\n") + heading(m.role), false);
    add(parts, m.content, m.is_answer);
  }
  return parts;
}

std::string spelling_of(const Tokenizer& tokenizer, std::optional<int32_t> token) {
  return token ? tokenizer.spelling(*token) : std::string();
}

ChatInput input_of(const InstructExample& example) {
  using jinja::Value;
  std::vector<Value> messages;
  for (const ChatMessage& m : example.messages)
    messages.push_back(Value::dict({{Value("role"), Value(m.role)}, {Value("content"), Value(m.content)}}));
  ChatInput input;
  input.messages = Value::list(std::move(messages));
  input.now = 0;  // a template that writes the date gives the same text every time
  return input;
}

}  // namespace

ChatFormat::ChatFormat(std::string_view chat_template, const std::string& source, const std::string& bos,
                       const std::string& eos)
    : source_(source) {
  if (!chat_template.empty())
    template_.emplace(chat_template, source, ChatVariables{{"bos_token", bos}, {"eos_token", eos}});
}

ChatFormat::ChatFormat(std::string_view chat_template, const std::string& source, const Tokenizer& tokenizer)
    : ChatFormat(chat_template, source, spelling_of(tokenizer, tokenizer.begin_of_document()),
                 spelling_of(tokenizer, tokenizer.end_of_document())) {}

std::vector<ChatPart> ChatFormat::render(const InstructExample& example) const {
  if (!template_ || example.is_plain) return plain_parts(example);
  const RenderedChat chat = template_->render_with_answers(input_of(example));
  const std::string_view text = chat.text;
  std::vector<ChatPart> parts;
  size_t at = 0, answer = 0;
  for (const ChatMessage& m : example.messages) {
    if (m.role != "assistant") continue;
    if (answer == chat.answers.size()) break;
    const jinja::TextSpan span = chat.answers[answer++];
    add(parts, text.substr(at, span.begin - at), false);
    add(parts, text.substr(span.begin, span.end - span.begin), m.is_answer);
    at = span.end;
  }
  const auto is_answer = [](const ChatMessage& m) { return m.role == "assistant"; };
  if (answer != chat.answers.size() || answer != size_t(std::ranges::count_if(example.messages, is_answer)))
    throw Error("{}: it marks {} answers of a conversation that has another number of them", source_,
                chat.answers.size());
  add(parts, text.substr(at), false);
  return parts;
}

std::string ChatFormat::render_prompt(const InstructExample& example) const {
  if (template_ && !example.is_plain) {
    ChatInput input = input_of(example);
    input.add_generation_prompt = true;
    return template_->render(input);
  }
  std::string text;
  for (const ChatPart& part : plain_parts(example)) text += part.text;
  return example.is_plain ? text : text + "\n\n" + heading("assistant");
}

}  // namespace weft
