// The table of families. Sources: the chat templates that are published with the models, and how vLLM and llama.cpp
// read their answers.
#include "weft/serve/api/reasoning_families.h"

#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/serve/api/trimmed.h"

namespace weft::api {
namespace {

using nlohmann::ordered_json;

constexpr ReasoningFamily kReasoners[] = {
    {.format = ReasoningFormat::none, .name = "none", .open = "", .close = ""},
    {.format = ReasoningFormat::harmony, .name = "harmony", .open = "", .close = "", .message_key = "thinking"},
    {.format = ReasoningFormat::mistral,
     .name = "mistral",
     .open = "[THINK]",
     .close = "[/THINK]",
     .token = "[THINK]",
     .has_blocks = true},
    {.format = ReasoningFormat::seed_oss,
     .name = "seed_oss",
     .open = "<seed:think>",
     .close = "</seed:think>",
     .token = "<seed:think>"},
    {.format = ReasoningFormat::command,
     .name = "command",
     .open = "<|START_THINKING|>",
     .close = "<|END_THINKING|>",
     .behind = "<|START_RESPONSE|>",
     .token = "<|START_THINKING|>",
     .message_key = "tool_plan"},
    {.format = ReasoningFormat::granite,
     .name = "granite",
     .open = "Here is my thought process:",
     .close = "Here is my response:"},
    {.format = ReasoningFormat::gemma4,
     .name = "gemma4",
     .open = "<|channel>thought",
     .close = "<channel|>",
     .token = "<|channel>"},
    {.format = ReasoningFormat::think, .name = "think", .open = "<think>", .close = "</think>", .token = "<think>"},
};

// Conversations in which a template shows how it writes thoughts: earlier ones, those that it asks for, and those
// that it does not want.
std::vector<std::string> shown(const ChatTemplate& chat_template) {
  const ordered_json question = {{"role", "user"}, {"content", "?"}};
  const ordered_json answer = {
      {"role", "assistant"}, {"content", "!"}, {"reasoning_content", "hm"}, {"thinking", "hm"}};
  std::vector<std::string> texts;
  for (const auto& [is_answered, thinks] : {std::pair(true, true), {false, true}, {false, false}}) {
    ordered_json messages = ordered_json::array({question});
    if (is_answered) messages.push_back(answer);
    ChatInput input{.messages = jinja::Value::from_json(messages), .add_generation_prompt = !is_answered};
    for (const char* name : {"enable_thinking", "thinking"})
      input.variables.emplace_back(name, jinja::Value::from_json(ordered_json(thinks)));
    try {
      texts.push_back(chat_template.render(input));
    } catch (const Error&) {  // the template wants it otherwise
    }
  }
  return texts;
}

}  // namespace

std::span<const ReasoningFamily> reasoning_families() { return kReasoners; }

const ReasoningFamily& reasoning_family(ReasoningFormat format) {
  check(size_t(format) < std::size(kReasoners), "there is no family of reasoning {}", int(format));
  const ReasoningFamily& family = kReasoners[size_t(format)];
  check(family.format == format, "a format of reasoning is the number of its row");
  return family;
}

std::optional<ReasoningFormat> parse_reasoning_format(std::string_view name) {
  for (const ReasoningFamily& family : reasoning_families()) {
    if (family.name == name) return family.format;
  }
  return {};
}

std::string reasoning_format_names() {
  std::string names;
  for (const ReasoningFamily& family : reasoning_families())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", family.name);
  return names;
}

ReasoningFormat detect_reasoning_format(const ChatTemplate& chat_template, const Tokenizer* tokenizer,
                                        ToolFormat tools) {
  if (tools == ToolFormat::harmony) return ReasoningFormat::harmony;
  const std::vector<std::string> texts = shown(chat_template);
  for (const ReasoningFamily& family : reasoning_families()) {
    if (!*family.open) continue;
    for (const std::string& text : texts) {
      if (text.find(family.open) != std::string::npos) return family.format;
    }
  }
  for (const ReasoningFamily& family : reasoning_families()) {
    if (tokenizer && family.token && tokenizer->find(family.token)) return family.format;
  }
  return ReasoningFormat::none;
}

ReasoningPlace reasoning_place(ReasoningFormat format, std::string_view prompt) {
  const ReasoningFamily& family = reasoning_family(format);
  if (format == ReasoningFormat::none) return ReasoningPlace::outside;
  if (format == ReasoningFormat::harmony) return ReasoningPlace::before;
  const std::string_view text = trimmed(prompt);
  if (text.ends_with(family.open)) return ReasoningPlace::inside;
  return text.ends_with(family.close) ? ReasoningPlace::outside : ReasoningPlace::before;
}

}  // namespace weft::api
