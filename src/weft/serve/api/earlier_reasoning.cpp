// Earlier reasoning: which key a template reads is looked up in those that are published.
#include "weft/serve/api/earlier_reasoning.h"

#include <nlohmann/json.hpp>
#include <string>

namespace weft::api {
namespace {

using nlohmann::ordered_json;

constexpr const char* kKeys[] = {"reasoning_content", "reasoning", "thinking"};

bool has_text(const ordered_json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() &&
         !object[key].get_ref<const std::string&>().empty();
}

// Mistral's parts are {"type": "thinking", "thinking": TEXT} or a list of texts there.
std::string text_of_part(const ordered_json& part) {
  if (has_text(part, "thinking")) return part["thinking"];
  if (has_text(part, "text")) return part["text"];
  std::string text;
  if (part.contains("thinking") && part["thinking"].is_array())
    for (const ordered_json& one : part["thinking"])
      if (has_text(one, "text")) text += one["text"].get_ref<const std::string&>();
  return text;
}

std::string take_parts(ordered_json& content) {
  std::string text;
  ordered_json rest = ordered_json::array();
  for (ordered_json& part : content) {
    const ordered_json type = part.is_object() ? part.value("type", ordered_json()) : ordered_json();
    if (type == "thinking" || type == "reasoning")
      text += text_of_part(part);
    else if (type != "redacted_thinking")
      rest.push_back(std::move(part));
  }
  content = std::move(rest);
  return text;
}

}  // namespace

void name_reasoning(ordered_json& messages, ReasoningFormat format) {
  if (!messages.is_array()) return;
  for (ordered_json& message : messages) {
    if (!message.is_object() || message.value("role", ordered_json()) != "assistant") continue;
    std::string text;
    for (const char* key : kKeys) {
      if (text.empty() && has_text(message, key)) text = message[key];
      message.erase(key);
    }
    if (message.contains("content") && message["content"].is_array()) {
      const std::string parts = take_parts(message["content"]);
      if (text.empty()) text = parts;
    }
    if (text.empty()) continue;
    message["reasoning_content"] = message["reasoning"] = text;
    const ReasoningFamily& family = reasoning_family(format);
    // Harmony's template refuses a call with both, since either is written as its analysis.
    const bool has_calls = message.contains("tool_calls") && !message["tool_calls"].empty();
    const bool is_refused = format == ReasoningFormat::harmony && has_calls && has_text(message, "content");
    if (*family.message_key && !is_refused) message[family.message_key] = text;
  }
}

void put_reasoning_in_contents(ordered_json& messages) {
  for (ordered_json& message : messages) {
    if (!has_text(message, "reasoning_content")) continue;
    ordered_json parts = ordered_json::array({{{"type", "thinking"}, {"thinking", message["reasoning_content"]}}});
    if (has_text(message, "content")) parts.push_back({{"type", "text"}, {"text", message["content"]}});
    message["content"] = std::move(parts);
  }
}

}  // namespace weft::api
