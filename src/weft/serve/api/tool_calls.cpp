// ToolCallParser: markers are found across pieces of text; JSON is read with limits.
#include "weft/serve/api/tool_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/base/json.h"

namespace weft::api {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
constexpr std::string_view kPython = "<|python_tag|>";
constexpr std::string_view kMistral = "[TOOL_CALLS]", kArgs = "[ARGS]";
constexpr JsonLimits kLimits{.max_bytes = 1 << 20, .max_depth = 64, .max_values = 1 << 16};
constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

size_t overlap(std::string_view text, std::string_view marker) {
  for (size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (text.ends_with(marker.substr(0, n))) return n;
  }
  return 0;
}

std::optional<ordered_json> read(std::string_view text) {
  try {
    return parse_ordered_json(text, "a tool call", kLimits);
  } catch (const Error&) {
    return {};
  }
}

// {"name": ..., "arguments" or "parameters": {...}}
std::optional<ToolCall> call_of(const ordered_json& value) {
  if (!value.is_object() || !value.contains("name") || !value["name"].is_string()) return {};
  for (const char* key : {"arguments", "parameters"}) {
    if (!value.contains(key)) continue;
    const ordered_json& arguments = value[key];
    const bool is_text = arguments.is_string();  // some models write the object as a string
    return ToolCall{value["name"].get<std::string>(), is_text ? arguments.get<std::string>() : arguments.dump()};
  }
  return ToolCall{value["name"].get<std::string>(), "{}"};
}

bool take_calls(std::string_view text, std::vector<ToolCall>& calls) {
  const std::optional<ordered_json> value = read(trimmed(text));
  if (!value) return false;
  std::vector<ToolCall> found;
  for (const ordered_json& item : value->is_array() ? *value : ordered_json::array({*value})) {
    const std::optional<ToolCall> call = call_of(item);
    if (!call) return false;
    found.push_back(*call);
  }
  calls.insert(calls.end(), found.begin(), found.end());
  return !found.empty();
}

}  // namespace

std::optional<ToolFormat> parse_tool_format(std::string_view name) {
  if (name == "hermes") return ToolFormat::hermes;
  if (name == "llama") return ToolFormat::llama;
  if (name == "mistral") return ToolFormat::mistral;
  return {};
}

ToolFormat detect_tool_format(const ChatTemplate& chat_template) {
  const auto value = [](const char* text) { return jinja::Value::from_json(ordered_json::parse(text)); };
  try {
    const std::string text =
        chat_template.render({.messages = value(R"([{"role": "user", "content": "?"},
             {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function",
              "function": {"name": "f", "arguments": {"x": 1}}}]}])"),
                              .tools = value(R"([{"type": "function", "function": {"name": "f", "description": "",
              "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}])")});
    if (text.find(kMistral) != std::string::npos) return ToolFormat::mistral;
    if (text.find(kOpen) != std::string::npos) return ToolFormat::hermes;
    if (text.find("\"parameters\": {\"x\"") != std::string::npos) return ToolFormat::llama;
  } catch (const Error&) {  // the template does not know of tools
  }
  return ToolFormat::hermes;
}

std::string marker_before(ToolFormat format) {
  switch (format) {
    case ToolFormat::hermes: return fmt::format("{}\n", kOpen);
    case ToolFormat::llama: return {};
    case ToolFormat::mistral: break;
  }
  return std::string(kMistral);
}

std::string call_beginning(ToolFormat format, const std::string& name) {
  return fmt::format("{{\"name\": {}, \"{}\": ", ordered_json(name).dump(),
                     format == ToolFormat::llama ? "parameters" : "arguments");
}

std::string forced_beginning(ToolFormat format, const std::string& name) {
  return fmt::format("{}{}{}", marker_before(format), format == ToolFormat::mistral ? "[" : "",
                     name.empty() ? "{\"name\": \"" : call_beginning(format, name));
}

std::string call_trigger(ToolFormat format, const Tokenizer& tokenizer) {
  switch (format) {
    case ToolFormat::hermes: return std::string(kOpen);
    case ToolFormat::llama: return "{";
    case ToolFormat::mistral: break;
  }
  return tokenizer.find(kArgs) ? std::string() : std::string(kMistral);
}

bool is_whole_answer(ToolFormat format) { return format == ToolFormat::llama; }

std::vector<std::string> tool_markers(ToolFormat format) {
  switch (format) {
    case ToolFormat::hermes: return {std::string(kOpen), std::string(kClose)};
    case ToolFormat::llama: return {std::string(kPython)};
    case ToolFormat::mistral: break;
  }
  return {std::string(kMistral), std::string(kArgs)};
}

ToolCallParser::Output ToolCallParser::push(std::string_view text) {
  Output output;
  held_ += text;
  format_ == ToolFormat::hermes ? take_hermes(output, false) : take_whole(output, false);
  return output;
}

ToolCallParser::Output ToolCallParser::finish() {
  Output output;
  format_ == ToolFormat::hermes ? take_hermes(output, true) : take_whole(output, true);
  return output;
}

void ToolCallParser::take_hermes(Output& output, bool is_last) {
  for (;;) {
    const std::string_view marker = is_inside_ ? kClose : kOpen;
    const size_t at = held_.find(marker);
    if (at == std::string::npos) break;
    const std::string before = held_.substr(0, at);
    held_.erase(0, at + marker.size());
    if (!is_inside_)
      output.content += before.substr(0, before.find_last_not_of(kSpace) + 1);
    else if (!take_calls(before, output.calls))
      output.content += fmt::format("{}{}{}", kOpen, before, kClose);
    has_calls_ = has_calls_ || is_inside_;
    is_inside_ = !is_inside_;
  }
  if (is_inside_) {
    // The end token may come instead of the closing marker.
    if (is_last && !take_calls(held_, output.calls)) output.content += std::string(kOpen) + held_;
    if (is_last) held_.clear();
    return;
  }
  size_t certain = is_last ? held_.size() : held_.size() - overlap(held_, kOpen);
  // Space before a call is no content; whether one follows shows later.
  const size_t text_end = held_.find_last_not_of(kSpace, certain - 1) + 1;
  if (!is_last || (has_calls_ && text_end == 0)) certain = std::min(certain, text_end);
  output.content += held_.substr(0, certain);
  held_.erase(0, certain);
}

// Calls of these formats last until the end of the answer.
void ToolCallParser::take_whole(Output& output, bool is_last) {
  if (!is_inside_) {
    const Split split = format_ == ToolFormat::llama ? split_llama(is_last) : split_mistral(is_last);
    const std::string content = held_.substr(0, split.content_bytes);
    held_.erase(0, split.content_bytes);
    is_inside_ = split.is_call;
    const bool is_blank = trimmed(content).empty();
    has_content_ = has_content_ || !is_blank;
    if (!is_blank || !is_inside_) output.content += content;
  }
  if (!is_inside_ || !is_last) return;
  if (!(format_ == ToolFormat::llama ? take_llama(held_, output) : take_mistral(held_, output)))
    output.content += held_;
  held_.clear();
}

ToolCallParser::Split ToolCallParser::split_llama(bool is_last) const {
  const std::string_view text = trimmed(held_);
  if (!has_content_ && (text.starts_with('{') || text.starts_with(kPython))) return {.is_call = true};
  const bool is_open = !has_content_ && !is_last && kPython.starts_with(text);
  return {.content_bytes = is_open ? 0 : held_.size()};
}

ToolCallParser::Split ToolCallParser::split_mistral(bool is_last) const {
  const size_t marker = held_.find(kMistral);
  if (marker != std::string::npos) return {.content_bytes = marker, .is_call = true};
  return {.content_bytes = held_.size() - (is_last ? 0 : overlap(held_, kMistral))};
}

bool ToolCallParser::take_llama(std::string_view text, Output& output) const {
  text = trimmed(text);
  if (text.starts_with(kPython)) text.remove_prefix(kPython.size());
  // Several calls are parted by semicolons, which may also stand inside a string.
  std::vector<ToolCall> calls;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    bool is_call = false;
    while (!is_call && end < text.size()) {
      end = std::min(text.find(';', end + 1), text.size());
      is_call = take_calls(text.substr(begin, end - begin), calls);
    }
    if (!is_call) return false;
    begin = end + 1;
  }
  output.calls.insert(output.calls.end(), calls.begin(), calls.end());
  return !calls.empty();
}

bool ToolCallParser::take_mistral(std::string_view text, Output& output) const {
  text = trimmed(text);
  std::vector<ToolCall> calls;
  while (text.starts_with(kMistral)) {
    text = trimmed(text.substr(kMistral.size()));
    const size_t end = std::min(text.find(kMistral), text.size());
    const std::string_view one = text.substr(0, end);
    const size_t args = one.find(kArgs);
    const size_t brace = one.find('{');
    if (args != std::string_view::npos && args < brace) {
      const std::string_view arguments = trimmed(one.substr(args + kArgs.size()));
      if (!read(arguments)) return false;
      calls.push_back({std::string(trimmed(one.substr(0, args))), std::string(arguments)});
    } else if (!take_calls(one, calls)) {
      return false;
    }
    text = trimmed(text.substr(end));
  }
  if (calls.empty() || !text.empty()) return false;
  output.calls.insert(output.calls.end(), calls.begin(), calls.end());
  return true;
}

}  // namespace weft::api
