// ChatFormat: where answers begin and end in what a template renders.
#include "weft/data/chat_format.h"

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

}  // namespace

ChatFormat::ChatFormat(std::string_view chat_template, const std::string& source, std::string bos, std::string eos)
    : bos_(std::move(bos)), eos_(std::move(eos)) {
  if (!chat_template.empty()) template_ = std::make_unique<jinja::Template>(chat_template, source);
}

jinja::Rendered ChatFormat::render(std::span<const ChatMessage> messages, bool add_generation_prompt) const {
  using jinja::Value;
  std::vector<Value> list;
  for (const ChatMessage& m : messages) list.push_back(Value::dict({{"role", m.role}, {"content", m.content}}));
  return template_->render({{"messages", Value::list(std::move(list))},
                            {"bos_token", bos_},
                            {"eos_token", eos_},
                            {"add_generation_prompt", add_generation_prompt}});
}

std::vector<ChatPart> ChatFormat::by_marks(const InstructExample& example) const {
  const jinja::Rendered rendered = render(example.messages, false);
  const std::string_view text = rendered.text;
  std::vector<ChatPart> parts;
  size_t at = 0, mark = 0;
  for (const ChatMessage& m : example.messages) {
    if (m.role != "assistant") continue;
    if (mark == rendered.generations.size())
      throw Error("{}: it marks {} answers of a conversation that has more", template_->source(), mark);
    const jinja::TextSpan span = rendered.generations[mark++];
    add(parts, text.substr(at, span.begin - at), false);
    add(parts, text.substr(span.begin, span.end - span.begin), m.is_answer);
    at = span.end;
  }
  add(parts, text.substr(at), false);
  return parts;
}

std::vector<ChatPart> ChatFormat::by_prefixes(const InstructExample& example) const {
  const std::span<const ChatMessage> all = example.messages;
  std::vector<ChatPart> parts;
  std::string done;
  const auto rest_of = [&](const std::string& text) {
    if (!text.starts_with(done))
      throw Error(
          "{}: the text of a conversation does not begin with the text of its beginning, so its answers cannot be "
          "found; mark them in the template by {{% generation %}} ... {{% endgeneration %}}",
          template_->source());
    return std::string_view(text).substr(done.size());
  };
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].is_answer) continue;
    const std::string prompt = render(all.first(i), true).text;
    add(parts, rest_of(prompt), false);
    done = prompt;
    const std::string answered = render(all.first(i + 1), false).text;
    add(parts, rest_of(answered), true);
    done = answered;
  }
  return parts;
}

std::vector<ChatPart> ChatFormat::render(const InstructExample& example) const {
  if (!template_ || example.is_plain) return plain_parts(example);
  return template_->has_generation_blocks() ? by_marks(example) : by_prefixes(example);
}

}  // namespace weft
