// The table of families. Sources: the chat templates that are published with the models, and how vLLM, SGLang and
// llama.cpp read their calls.
#include "weft/serve/api/tool_families.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/serve/api/marked_arguments.h"
#include "weft/serve/api/python_arguments.h"
#include "weft/serve/api/trimmed.h"

namespace weft::api {
namespace {

using nlohmann::ordered_json;

// functions.NAME:INDEX, all of which is the id.
CallHeader kimi_header(std::string_view header) {
  header = trimmed(header);
  CallHeader call{.id = std::string(header)};
  constexpr std::string_view kOfFunctions = "functions.";
  if (header.starts_with(kOfFunctions)) header.remove_prefix(kOfFunctions.size());
  call.name = header.substr(0, header.rfind(':'));
  return call;
}

// NAME, or NAME[CALL_ID]ID.
CallHeader mistral_header(std::string_view header) {
  constexpr std::string_view kId = "[CALL_ID]";
  const size_t at = header.find(kId);
  CallHeader call{.name = std::string(trimmed(header.substr(0, at)))};
  if (at != std::string_view::npos) call.id = trimmed(header.substr(at + kId.size()));
  return call;
}

// RECIPIENT, of which "all" is the reader.
CallHeader functionary_header(std::string_view header) {
  const std::string_view name = trimmed(header);
  return {.kind = name == "all" ? CallHeader::Kind::text : CallHeader::Kind::call, .name = std::string(name)};
}

// CHANNEL, or CHANNEL to=functions.NAME <|constrain|>json; the recipient may also stand before the channel.
CallHeader harmony_header(std::string_view header) {
  constexpr std::string_view kTo = "to=functions.", kChannel = "<|channel|>";
  if (const size_t to = header.find(kTo); to != std::string_view::npos) {
    const std::string_view name = header.substr(to + kTo.size());
    return {.name = std::string(trimmed(name.substr(0, std::min(name.find("<|"), name.find(" json")))))};
  }
  const size_t channel = header.rfind(kChannel);
  if (channel != std::string_view::npos) header.remove_prefix(channel + kChannel.size());
  const bool is_thought = trimmed(header).starts_with("analysis");
  return {.kind = is_thought ? CallHeader::Kind::thought : CallHeader::Kind::text};
}

CallHeader python_header(std::string_view header) {
  const std::string_view name = trimmed(header);
  return {.name = is_python_name(name, true) ? std::string(name) : ""};
}

// Calls in Python, as a list or each in a line.
constexpr ToolFamily python_family(ToolFormat format, const char* name, TextList signs, const char* token,
                                   const char* mark, const char* behind, const char* between, const char* end,
                                   TextList markers, TextList around) {
  return {.format = format,
          .name = name,
          .signs = signs,
          .token = token,
          .style = CallStyle::python,
          .mark = mark,
          .behind = behind,
          .open = "",
          .middle = "(",
          .close = ")",
          .between = between,
          .end = end,
          .markers = markers,
          .around = around,
          .is_whole_answer = !*mark,
          .read_header = python_header};
}

// Where a call is {"name": NAME, "arguments": {...}}, and a list of them has `around`.
constexpr ToolFamily json_family(ToolFormat format, const char* name, TextList signs, const char* token,
                                 const char* mark, const char* behind, const char* close, const char* between,
                                 const char* end, TextList markers, TextList around) {
  return {.format = format,
          .name = name,
          .signs = signs,
          .token = token,
          .style = CallStyle::object,
          .mark = mark,
          .behind = behind,
          .open = "{\"name\": ",
          .middle = ", \"arguments\": ",
          .close = close,
          .between = between,
          .end = end,
          .markers = markers,
          .around = around};
}

constexpr ToolFamily kFamilies[] = {
    {.format = ToolFormat::harmony,
     .name = "harmony",
     .signs = {"<|channel|>", "to=functions."},
     .token = "<|constrain|>",
     .style = CallStyle::named,
     .mark = "<|channel|>",
     .behind = "",
     .open = "commentary to=functions.",
     .middle = " <|constrain|>json<|message|>",
     .close = "",
     .between = "",
     .end = "",
     .markers = {"<|channel|>", "<|start|>", "<|message|>", "<|constrain|>", "<|end|>"},
     .around = {"<|call|>"},
     .is_parallel = false,
     .read_header = harmony_header,
     .is_framed = true,
     .part_begin = "<|start|>",
     .part_end = "<|end|>"},
    {.format = ToolFormat::deepseek_v32,
     .name = "deepseek_v32",
     .signs = {"<｜DSML｜invoke"},
     .token = "｜DSML｜",
     .style = CallStyle::tagged,
     .mark = "<｜DSML｜function_calls>",
     .behind = "\n",
     .open = "<｜DSML｜invoke name=\"",
     .middle = "\">\n",
     .close = "</｜DSML｜invoke>\n",
     .between = "",
     .end = "</｜DSML｜function_calls>",
     .key_open = "<｜DSML｜parameter name=\"",
     .value_open = "\" string=\"true\">",
     .value_close = "</｜DSML｜parameter>\n",
     .json_open = "\" string=\"false\">",
     .markers = {"｜DSML｜"},
     .around = {"</｜DSML｜invoke>", "</｜DSML｜function_calls>"}},
    {.format = ToolFormat::deepseek_v3,
     .name = "deepseek_v3",
     .signs = {"<｜tool▁sep｜>", "```json"},
     .token = nullptr,
     .style = CallStyle::named,
     .mark = "<｜tool▁calls▁begin｜>",
     .behind = "",
     .open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .middle = "\n```json\n",
     .close = "\n```<｜tool▁call▁end｜>",
     .between = "\n",
     .end = "<｜tool▁calls▁end｜>",
     .markers = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
                 "<｜tool▁calls▁end｜>"},
     .around = {"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}},
    {.format = ToolFormat::deepseek_v31,
     .name = "deepseek_v31",
     .signs = {"<｜tool▁sep｜>"},
     .token = "<｜tool▁sep｜>",
     .style = CallStyle::named,
     .mark = "<｜tool▁calls▁begin｜>",
     .behind = "",
     .open = "<｜tool▁call▁begin｜>",
     .middle = "<｜tool▁sep｜>",
     .close = "<｜tool▁call▁end｜>",
     .between = "",
     .end = "<｜tool▁calls▁end｜>",
     .markers = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
                 "<｜tool▁calls▁end｜>"},
     .around = {"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}},
    {.format = ToolFormat::kimi_k2,
     .name = "kimi_k2",
     .signs = {"<|tool_calls_section_begin|>"},
     .token = "<|tool_calls_section_begin|>",
     .style = CallStyle::named,
     .mark = "<|tool_calls_section_begin|>",
     .behind = "",
     .open = "<|tool_call_begin|>functions.",
     .middle = ":#<|tool_call_argument_begin|>",
     .close = "<|tool_call_end|>",
     .between = "",
     .end = "<|tool_calls_section_end|>",
     .markers = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
                 "<|tool_call_end|>", "<|tool_calls_section_end|>"},
     .around = {"<|tool_call_end|>", "<|tool_calls_section_end|>"},
     .read_header = kimi_header},
    {.format = ToolFormat::minimax_m2,
     .name = "minimax_m2",
     .signs = {"<minimax:tool_call>"},
     .token = "<minimax:tool_call>",
     .style = CallStyle::tagged,
     .mark = "<minimax:tool_call>",
     .behind = "\n",
     .open = "<invoke name=\"",
     .middle = "\">\n",
     .close = "</invoke>\n",
     .between = "",
     .end = "</minimax:tool_call>",
     .key_open = "<parameter name=\"",
     .value_open = "\">",
     .value_close = "</parameter>\n",
     .markers = {"<minimax:tool_call>", "</minimax:tool_call>"},
     .around = {"</invoke>", "</minimax:tool_call>"}},
    {.format = ToolFormat::seed_oss,
     .name = "seed_oss",
     .signs = {"<seed:tool_call>"},
     .token = "<seed:tool_call>",
     .style = CallStyle::tagged,
     .mark = "<seed:tool_call>",
     .behind = "\n",
     .open = "<function=",
     .middle = ">\n",
     .close = "</function>\n</seed:tool_call>",
     .between = "\n<seed:tool_call>\n",
     .end = "",
     .key_open = "<parameter=",
     .value_open = ">",
     .value_close = "</parameter>\n",
     .markers = {"<seed:tool_call>", "</seed:tool_call>"},
     .around = {"</function>", "</seed:tool_call>"}},
    {.format = ToolFormat::glm,
     .name = "glm",
     .signs = {"<tool_call>", "<arg_key>"},
     .token = "<arg_key>",
     .style = CallStyle::tagged,
     .mark = "<tool_call>",
     .behind = "",
     .open = "",
     .middle = "\n",
     .close = "</tool_call>",
     .between = "\n<tool_call>",
     .end = "",
     .key_open = "<arg_key>",
     .value_open = "</arg_key>\n<arg_value>",
     .value_close = "</arg_value>\n",
     .markers = {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"},
     .around = {"</tool_call>"},
     .is_loose = true},
    {.format = ToolFormat::qwen3_coder,
     .name = "qwen3_coder",
     .signs = {"<tool_call>", "<function=", "<parameter="},
     .token = nullptr,
     .style = CallStyle::tagged,
     .mark = "<tool_call>",
     .behind = "\n",
     .open = "<function=",
     .middle = ">\n",
     .close = "</function>\n</tool_call>",
     .between = "\n<tool_call>\n",
     .end = "",
     .key_open = "<parameter=",
     .value_open = ">\n",
     .value_close = "\n</parameter>\n",
     .markers = {"<tool_call>", "</tool_call>"},
     .around = {"</function>", "</tool_call>"}},

    {.format = ToolFormat::functionary_v31,
     .name = "functionary_v31",
     .signs = {"<function=", "</function>"},
     .token = nullptr,
     .style = CallStyle::named,
     .mark = "<function=",
     .behind = "",
     .open = "",
     .middle = ">",
     .close = "</function>",
     .between = "<function=",
     .end = "",
     .around = {"</function>"}},
    {.format = ToolFormat::functionary_v32,
     .name = "functionary_v32",
     .signs = {">>>f\n"},
     .token = nullptr,
     .style = CallStyle::named,
     .mark = ">>>",
     .behind = "",
     .open = "",
     .middle = "\n",
     .close = "",
     .between = ">>>",
     .end = "",
     .read_header = functionary_header,
     .is_framed = true},
    {.format = ToolFormat::command_r,
     .name = "command_r",
     .signs = {"<|START_ACTION|>"},
     .token = "<|START_ACTION|>",
     .style = CallStyle::object,
     .mark = "<|START_ACTION|>",
     .behind = "[\n    ",
     .open = "{\"tool_call_id\": \"#\", \"tool_name\": ",
     .middle = ", \"parameters\": ",
     .close = "}",
     .between = ",\n    ",
     .end = "\n]<|END_ACTION|>",
     .markers = {"<|START_ACTION|>", "<|END_ACTION|>"},
     .around = {"[", ",", "]", "<|END_ACTION|>"}},

    json_family(ToolFormat::phi4, "phi4", {"<|tool_call|>", "<|/tool_call|>"}, "<|/tool_call|>", "<|tool_call|>", "",
                "}<|/tool_call|>", "<|tool_call|>", "", {"<|tool_call|>", "<|/tool_call|>"},
                {"[", ",", "]", "<|/tool_call|>"}),
    json_family(ToolFormat::granite, "granite", {"<|tool_call|>"}, "<|tool_call|>", "<|tool_call|>", "[", "}", ", ",
                "]", {"<|tool_call|>"}, {"[", ",", "]"}),
    json_family(ToolFormat::functools, "functools", {"functools["}, nullptr, "functools", "[", "}", ", ", "]", {},
                {"[", ",", "]"}),
    json_family(ToolFormat::minimax_m1, "minimax_m1", {"<tool_calls>\n{"}, nullptr, "<tool_calls>", "\n", "}\n", "",
                "</tool_calls>", {"<tool_calls>", "</tool_calls>"}, {"[", ",", "]", "</tool_calls>"}),
    json_family(ToolFormat::hunyuan, "hunyuan", {"<tool_calls>["}, nullptr, "<tool_calls>", "[", "}", ", ",
                "]</tool_calls>", {"<tool_calls>", "</tool_calls>"}, {"[", ",", "]", "</tool_calls>"}),
    json_family(ToolFormat::nemotron, "nemotron", {"<TOOLCALL>"}, nullptr, "<TOOLCALL>", "[", "}", ", ",
                "]</TOOLCALL>", {"<TOOLCALL>", "</TOOLCALL>"}, {"[", ",", "]", "</TOOLCALL>"}),
    python_family(ToolFormat::lfm2, "lfm2", {"<|tool_call_start|>"}, "<|tool_call_start|>", "<|tool_call_start|>",
                  "[", ", ", "]<|tool_call_end|>", {"<|tool_call_start|>", "<|tool_call_end|>"},
                  {"[", ",", "]", "<|tool_call_end|>"}),
    {.format = ToolFormat::gemma4,
     .name = "gemma4",
     .signs = {"<|tool_call>call:"},
     .token = "<|tool_call>",
     .style = CallStyle::marked,
     .mark = "<|tool_call>",
     .behind = "",
     .open = "call:",
     .middle = "{",
     .close = "}<tool_call|>",
     .between = "<|tool_call>",
     .end = "",
     .markers = {"<|tool_call>", "<tool_call|>", kTextMark},
     .around = {"<tool_call|>"}},
    python_family(ToolFormat::gemma, "gemma", {"```tool_code"}, nullptr, "```tool_code", "\n", "\n", "\n```", {},
                  {"[", ",", "]", "```"}),
    python_family(ToolFormat::pythonic, "pythonic", {"[f(x=1)]"}, "<|python_start|>", "", "[", ", ", "]",
                  {"<|python_start|>", "<|python_end|>"}, {"[", ",", "]", "<|python_start|>", "<|python_end|>"}),
    {.format = ToolFormat::mistral_args,
     .name = "mistral_args",
     .signs = {"[TOOL_CALLS]", "[ARGS]"},
     .token = "[ARGS]",
     .style = CallStyle::named,
     .mark = "[TOOL_CALLS]",
     .behind = "",
     .open = "",
     .middle = "[ARGS]",
     .close = "",
     .between = "[TOOL_CALLS]",
     .end = "",
     .markers = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
     .around = {"[", ",", "]"},
     .read_header = mistral_header},
    json_family(ToolFormat::mistral, "mistral", {"[TOOL_CALLS]"}, "[TOOL_CALLS]", "[TOOL_CALLS]", "[", "}", ", ", "]",
                {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}, {"[", ",", "]"}),
    json_family(ToolFormat::hermes, "hermes", {"<tool_call>"}, nullptr, "<tool_call>", "\n", "}\n</tool_call>",
                "\n<tool_call>\n", "", {"<tool_call>", "</tool_call>"}, {"[", ",", "]", "</tool_call>"}),
    {.format = ToolFormat::llama,
     .name = "llama",
     .signs = {"\"parameters\": {\"x\""},
     .token = nullptr,
     .style = CallStyle::object,
     .mark = "",
     .behind = "",
     .open = "{\"name\": ",
     .middle = ", \"parameters\": ",
     .close = "}",
     .between = "; ",
     .end = "",
     .markers = {"<|python_tag|>"},
     .around = {"[", ",", "]", ";", "<|python_tag|>"},
     .is_whole_answer = true},
};

constexpr bool is_in_order() {
  for (size_t i = 0; i < std::size(kFamilies); ++i) {
    if (kFamilies[i].format != ToolFormat(i)) return false;
  }
  return true;
}
static_assert(is_in_order(), "a format is the number of its row");

bool shows(const std::string& text, const ToolFamily& family) {
  return std::all_of(family.signs.begin(), family.signs.end(),
                     [&](const char* sign) { return text.find(sign) != std::string::npos; });
}

// A conversation with a call, as different templates want it: arguments as an object or as text, or no call.
std::vector<ordered_json> probes() {
  ordered_json call = ordered_json::parse(R"([{"role": "user", "content": "?"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "call00001", "type": "function",
       "function": {"name": "f", "arguments": {"x": 1}}}]}])");
  ordered_json of_text = call, of_user = ordered_json::array({call[0]});
  of_text[1]["tool_calls"][0]["function"]["arguments"] = R"({"x": 1})";
  return {std::move(call), std::move(of_text), std::move(of_user)};
}

std::string with_numbers(std::string text) {
  std::replace(text.begin(), text.end(), '#', '0');
  return text;
}

}  // namespace

std::span<const ToolFamily> tool_families() { return kFamilies; }

const ToolFamily& tool_family(ToolFormat format) {
  check(size_t(format) < std::size(kFamilies), "there is no family of tool calls {}", int(format));
  return kFamilies[size_t(format)];
}

std::optional<ToolFormat> parse_tool_format(std::string_view name) {
  for (const ToolFamily& family : tool_families()) {
    if (family.name == name) return family.format;
  }
  return {};
}

std::string tool_format_names() {
  std::string names;
  for (const ToolFamily& family : tool_families())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", family.name);
  return names;
}

ToolFormat detect_tool_format(const ChatTemplate& chat_template, const Tokenizer* tokenizer) {
  const auto tools = jinja::Value::from_json(ordered_json::parse(
      R"([{"type": "function", "function": {"name": "f", "description": "",
           "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}])"));
  for (const ordered_json& messages : probes()) {
    try {
      const std::string text = chat_template.render({.messages = jinja::Value::from_json(messages), .tools = tools});
      for (const ToolFamily& family : tool_families()) {
        if (shows(text, family)) return family.format;
      }
    } catch (const Error&) {  // the template wants it otherwise, or does not know of tools
    }
  }
  for (const ToolFamily& family : tool_families()) {
    if (tokenizer && family.token && tokenizer->find(family.token)) return family.format;
  }
  return ToolFormat::hermes;
}

std::string marker_before(ToolFormat format) {
  const ToolFamily& family = tool_family(format);
  const std::string_view behind = family.behind;
  return fmt::format("{}{}", family.mark, behind.substr(0, std::min(behind.find_first_not_of(" \n"), behind.size())));
}

std::string forced_beginning(ToolFormat format, const std::string& name) {
  const ToolFamily& family = tool_family(format);
  std::string text = with_numbers(fmt::format("{}{}{}", family.mark, family.behind, family.open));
  if (family.style != CallStyle::object) return name.empty() ? text : text + name + with_numbers(family.middle);
  if (name.empty()) return text + "\"";
  return text + ordered_json(name).dump() + with_numbers(family.middle);
}

std::string call_trigger(ToolFormat format) {
  const ToolFamily& family = tool_family(format);
  if (family.is_framed) return {};
  if (!family.is_whole_answer) return family.mark;
  return family.style == CallStyle::python ? "[" : "{";
}

std::vector<std::string> tool_markers(ToolFormat format) {
  const auto& markers = tool_family(format).markers;
  return {markers.begin(), markers.end()};
}

}  // namespace weft::api
