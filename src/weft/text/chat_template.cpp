// Chat templates: where they are found, what they are given, and where answers are in what they write.
#include "weft/text/chat_template.h"

#include <map>

#include "weft/base/json.h"

namespace weft {
namespace {

using jinja::Value;

constexpr std::string_view kTemplateName = "chat_template.jinja", kConfigName = "tokenizer_config.json";
constexpr std::string_view kTemplateKey = "chat_template";

// Templates by name: one is "default".
std::map<std::string, std::string> templates_of(const JsonDocument& config) {
  const JsonView root = config.root();
  if (!root.has(kTemplateKey)) return {};
  const JsonView value = root.at(kTemplateKey);
  if (value.is_string()) return {{"default", value.string()}};
  std::map<std::string, std::string> templates;
  for (int64_t i = 0; i < value.size(); ++i) {
    templates[value.at(i).at("name").string()] = value.at(i).at("template").string();
  }
  return templates;
}

// bos_token, eos_token and their like: strings, or objects with the text as their content.
std::vector<std::pair<std::string, std::string>> special_tokens(const JsonDocument& config) {
  std::vector<std::pair<std::string, std::string>> tokens;
  const JsonView root = config.root();
  for (const std::string& key : root.keys()) {
    const JsonView value = root.at(key);
    if (!key.ends_with("_token")) continue;
    if (value.is_string()) tokens.emplace_back(key, value.string());
    if (value.is_object() && value.has("content")) tokens.emplace_back(key, value.at("content").string());
  }
  return tokens;
}

// The templates of a tokenizer_config.json; no text: it has none.
void read_templates(const JsonDocument& config, ChatTemplate::Text& into) {
  const std::map<std::string, std::string> templates = templates_of(config);
  const auto named = [&](const char* name) {
    const auto found = templates.find(name);
    if (found == templates.end()) return std::string();
    if (found->second.size() > ChatTemplate::kMostBytes)
      throw Error("{}: {} has {} bytes; at most {} are read", config.source(), kTemplateKey, found->second.size(),
                  ChatTemplate::kMostBytes);
    return found->second;
  };
  into.text = named("default"), into.with_tools = named("tool_use");
  into.source = fmt::format("{}, {}", config.source(), kTemplateKey);
}

std::optional<ChatTemplate::Text> if_any(ChatTemplate::Text found) {
  return found.text.empty() ? std::nullopt : std::optional(std::move(found));
}

// Large input may take more steps and give more text than small input.
jinja::Limits limits_for(const ChatInput& input) {
  const uint64_t weight = input.messages.weight() + input.tools.weight() + input.documents.weight();
  constexpr uint64_t kStepsPerWeight = 64, kBytesPerWeight = 32 * 4;
  jinja::Limits limits;
  limits.max_steps += weight * kStepsPerWeight;
  limits.max_text_bytes += weight * kBytesPerWeight;
  return limits;
}

bool is_answer(const Value& message) {
  const Value role = jinja::item_of(message, "role");
  return role.is_text() && role.text() == "assistant";
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view text, std::string source, ChatVariables tokens)
    : template_(text, std::move(source)), tokens_(std::move(tokens)) {}

ChatTemplate::ChatTemplate(const Text& text) : template_(text.text, text.source) {
  if (!text.with_tools.empty()) with_tools_.emplace(text.with_tools, text.source + " tool_use");
  for (const auto& [name, token] : text.tokens) tokens_.emplace_back(name, token);
}

std::optional<ChatTemplate::Text> ChatTemplate::find_text_in(std::string_view tokenizer_config,
                                                             const std::string& source) {
  const JsonDocument config = JsonDocument::parse(tokenizer_config, source);
  Text found{.tokens = special_tokens(config)};
  read_templates(config, found);
  return if_any(std::move(found));
}

std::optional<ChatTemplate::Text> ChatTemplate::find_text(const std::string& folder, FileSystem& fs) {
  const std::string own = join_path(folder, kTemplateName), beside = join_path(folder, kConfigName);
  Text found;
  if (exists(fs, own)) found.text = read_file(own, kMostBytes, fs), found.source = own;
  if (exists(fs, beside)) {
    const JsonLimits limits;
    const JsonDocument config = JsonDocument::parse(read_file(beside, limits.max_bytes, fs), beside, limits);
    found.tokens = special_tokens(config);
    if (found.source.empty()) read_templates(config, found);
  }
  return if_any(std::move(found));
}

const jinja::Template& ChatTemplate::choose(const ChatInput& input) const {
  return with_tools_ && input.tools.truthy() ? *with_tools_ : template_;
}

jinja::Rendered ChatTemplate::render_messages(const ChatInput& input, Value messages,
                                              bool add_generation_prompt) const {
  const auto given_or_none = [](const Value& value) { return value.is_undefined() ? Value(nullptr) : value; };
  ChatVariables variables = tokens_;
  variables.emplace_back("messages", std::move(messages));
  variables.emplace_back("tools", given_or_none(input.tools));
  variables.emplace_back("documents", given_or_none(input.documents));
  variables.emplace_back("add_generation_prompt", add_generation_prompt);
  variables.insert(variables.end(), input.variables.begin(), input.variables.end());
  return choose(input).render(variables, limits_for(input), input.now);
}

std::string ChatTemplate::render(const ChatInput& input) const {
  return render_messages(input, input.messages, input.add_generation_prompt).text;
}

RenderedChat ChatTemplate::render_with_answers(const ChatInput& input) const {
  jinja::Rendered rendered = render_messages(input, input.messages, input.add_generation_prompt);
  if (choose(input).has_generation_blocks()) return {std::move(rendered.text), std::move(rendered.generations)};
  std::vector<jinja::TextSpan> answers = find_answers(input, rendered.text);
  return {std::move(rendered.text), std::move(answers)};
}

std::vector<jinja::TextSpan> ChatTemplate::find_answers(const ChatInput& input, const std::string& text) const {
  const std::vector<Value>& messages = input.messages.items();
  const auto first = [&](size_t n) { return Value::list({messages.begin(), messages.begin() + ptrdiff_t(n)}); };
  std::vector<jinja::TextSpan> answers;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!is_answer(messages[i])) continue;
    const std::string asked = render_messages(input, first(i), true).text;
    const std::string answered = render_messages(input, first(i + 1), false).text;
    if (!answered.starts_with(asked) || !text.starts_with(answered)) {
      throw Error(
          "{}: message {} is written otherwise once others follow it, so where its answer is cannot be told; "
          "mark answers in the template by {{% generation %}}, or end each conversation with the answer to learn",
          choose(input).source(), i + 1);
    }
    answers.push_back({asked.size(), answered.size()});
  }
  return answers;
}

}  // namespace weft
