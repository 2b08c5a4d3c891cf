// A form that a request asks its answer to have: compiled, and followed by a text that the form itself allows. Or an
// answer that is read for tool calls, or for what its model thinks.
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/serve/api/reasoning_parser.h"
#include "weft/serve/constrain/constraint_factory.h"
#include "weft/serve/constrain/matcher.h"

namespace weft {
namespace {

using constrain::Matcher;
using Kind = api::OutputForm::Kind;

// The first line says which kind of form the rest is.
api::OutputForm form_of(std::string_view text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view kind = text.substr(0, end), rest = text.substr(std::min(end + 1, text.size()));
  if (kind == "schema") return {.kind = Kind::json_schema, .text = std::string(rest)};
  if (kind == "regex") return {.kind = Kind::regex, .text = std::string(rest)};
  if (kind == "tool" || kind == "tags")
    return {.kind = Kind::tool_calls,
            .choices = {"f"},
            .schemas = {std::string(rest)},
            .tool_format = kind == "tags" ? api::ToolFormat::qwen3_coder : api::ToolFormat::hermes};
  return {.kind = Kind::grammar, .text = std::string(rest)};
}

// Takes the first byte that may come behind the last one. A byte that may come leaves a way on, and what is released
// is as if it had never been.
void follow(Matcher& matcher, Bytes input) {
  constexpr int kMostBytes = 48;
  Matcher::State state = matcher.start(), next;
  uint8_t wanted = 0;
  for (int i = 0; i < kMostBytes; ++i) {
    wanted = uint8_t(wanted * 5 + uint8_t(input[size_t(i) % input.size()]));
    bool goes_on = false;
    for (int k = 0; k < 256 && !goes_on; ++k) {
      const size_t mark = matcher.mark();
      goes_on = matcher.step(state, uint8_t(wanted + k), next);
      if (!goes_on) matcher.release(mark);
      if (goes_on && next.empty()) std::abort();
    }
    if (!goes_on) return;
    std::swap(state, next);
  }
}

// The calls of an answer, of the family that its first line names behind "calls ": the same however it is parted.
void read_calls(std::string_view text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const auto format = api::parse_tool_format(text.substr(0, end));
  if (!format) return;
  text.remove_prefix(std::min(end + 1, text.size()));
  const auto read = [&](size_t step) {
    api::ToolCallParser parser(*format);
    std::string content, calls;
    const auto take = [&](const api::ToolCallParser::Output& output) {
      content += output.content;
      for (const api::ToolCall& call : output.calls)
        calls += call.name + '\0' + call.arguments + '\0' + call.id + '\0';
    };
    for (size_t at = 0; at < text.size(); at += step) take(parser.push(text.substr(at, step)));
    take(parser.finish());
    return content + '\0' + calls;
  };
  const std::string whole = read(text.size() + 1);
  for (const size_t step : {size_t(1), size_t(7)}) {
    if (read(step) != whole) std::abort();
  }
}

// What a model thinks, of the family that the first line names behind "thoughts "; likewise.
void read_thoughts(std::string_view text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const auto format = api::parse_reasoning_format(text.substr(0, end));
  if (!format || !*api::reasoning_family(*format).open) return;
  text.remove_prefix(std::min(end + 1, text.size()));
  for (const auto place : {api::ReasoningPlace::before, api::ReasoningPlace::inside}) {
    const auto read = [&](size_t step) {
      api::ReasoningParser parser(*format, place);
      std::string reasoning, content;
      const auto take = [&](const api::ReasoningParser::Output& output) {
        reasoning += output.reasoning;
        content += output.content;
      };
      for (size_t at = 0; at < text.size(); at += step) take(parser.push(text.substr(at, step)));
      take(parser.finish());
      return reasoning + '\0' + content;
    };
    const std::string whole = read(text.size() + 1);
    for (const size_t step : {size_t(1), size_t(7)}) {
      if (read(step) != whole) std::abort();
    }
  }
}

}  // namespace

void fuzz_form(Bytes input) {
  if (input.empty()) return;
  if (constexpr std::string_view kThoughts = "thoughts "; text_of(input).starts_with(kThoughts))
    return read_thoughts(text_of(input).substr(kThoughts.size()));
  if (constexpr std::string_view kCalls = "calls "; text_of(input).starts_with(kCalls))
    return read_calls(text_of(input).substr(kCalls.size()));
  expect_errors_only([&] {
    const constrain::Grammar grammar = constrain::grammar_of(form_of(text_of(input)));
    Matcher matcher(grammar);
    follow(matcher, input);
  });
}

}  // namespace weft
