// Tool calls as grammars: what stands between calls and around them is that of the family's row.
#include "weft/serve/constrain/tool_call_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/serve/api/python_arguments.h"
#include "weft/serve/constrain/control_marks.h"
#include "weft/serve/constrain/json_schema.h"
#include "weft/serve/constrain/schema_compiler.h"

namespace weft::constrain {
namespace {

constexpr int64_t kMostCalls = 16;
constexpr int64_t kMostDigits = 3;  // of a call's number
constexpr const char* kHarmonyMarks = "<\\|(channel|start|message|end)\\|>";

class CallGrammar {
 public:
  CallGrammar(GrammarBuilder& builder, const api::OutputForm& form)
      : builder_(builder), form_(form), family_(api::tool_family(form.tool_format)) {}

  // From behind the mark, or what of `behind` came with it.
  Sequence calls() {
    const std::string_view behind = family_.behind;
    const size_t lines = std::min(behind.find_first_not_of(" \n"), behind.size());
    // A model that begins a call by itself may go on in a new line, or behind a space, or not.
    const bool has_line = behind.starts_with('\n');
    const bool may_space =
        !form_.trigger.empty() && !form_.is_whole_answer && (has_line || family_.style == api::CallStyle::object);
    const char* const space = has_line ? "\n" : " ";
    Sequence all = may_space ? Sequence{builder_.optional(builder_.literal(space))} : Sequence();
    all = all + text(behind.substr(lines)) + one_call();
    if (form_.is_parallel && family_.is_parallel)
      all.push_back(builder_.repeat(text(family_.between) + one_call(), 0, kMostCalls - 1));
    return all + text(family_.end);
  }

  Sequence marked_calls() { return text(api::marker_before(form_.tool_format)) + calls(); }

  Sequence answer_of_harmony() {
    const Sequence said{text_without(builder_, kHarmonyMarks)};
    const Sequence channel = text("<|channel|>"), message = text("<|message|>");
    std::vector<Sequence> ways{channel + builder_.literal("final") + message + said};
    ways.push_back(channel + one_call());
    for (size_t i = 0; i < form_.choices.size(); ++i)
      ways.push_back(builder_.literal(" to=functions.") + named(i) + text("<|channel|>commentary ") +
                     Sequence{builder_.optional(text("<|constrain|>"))} + builder_.literal("json") + message +
                     Sequence{arguments(i)});
    return {harmony_asides(builder_), builder_.one_of(ways)};
  }

  Sequence answer_of_functionary() {
    const Sequence said = builder_.literal("all\n") + Sequence{text_without(builder_, ">>>")};
    return {builder_.one_of({said, said + builder_.literal(">>>") + calls(), calls()})};
  }

 private:
  // Of the row: with its numbers, ends of lines that may be missing, and control tokens.
  Sequence text(std::string_view row) {
    Sequence all;
    while (!row.empty()) {
      const auto marker = std::find_if(family_.markers.begin(), family_.markers.end(),
                                       [&](std::string_view one) { return row.starts_with(one); });
      if (marker != family_.markers.end()) {
        all.push_back(mark_element(builder_, *marker));
        row.remove_prefix(std::string_view(*marker).size());
        continue;
      }
      const Sequence byte = builder_.literal(row.substr(0, 1));
      if (row[0] == '#')
        all.push_back(builder_.repeat({builder_.code_points({{'0', '9'}})}, 1, kMostDigits));
      else if (row[0] == '\n' && family_.is_loose)
        all.push_back(builder_.optional(byte));
      else
        all = all + byte;
      row.remove_prefix(1);
    }
    return all;
  }

  Sequence named(size_t tool) {
    const std::string& name = form_.choices[tool];
    if (family_.style == api::CallStyle::object) return builder_.literal(nlohmann::ordered_json(name).dump());
    if (name.empty() || name.find_first_of("<>\n[{") != std::string::npos)
      throw UsageError("tool {}: this model cannot write its name, which has one of <, >, [, {{ or the end of a line",
                       name);
    if (family_.style == api::CallStyle::python && !api::is_python_name(name, true))
      throw UsageError("tool {}: this model cannot write its name, which is none that Python has", name);
    return builder_.literal(name);
  }

  Element arguments(size_t tool) {
    try {
      if (family_.style == api::CallStyle::python) {
        const TaggedForm names{
            .open = {}, .middle = text("="), .close = {}, .separator = text(", "), .is_python = true};
        return tagged_schema_element(builder_, form_.schemas[tool], names);
      }
      if (family_.style == api::CallStyle::marked) {
        const TaggedForm names{
            .open = {}, .middle = text(":"), .close = {}, .separator = text(","), .is_marked = true};
        return tagged_schema_element(builder_, form_.schemas[tool], names);
      }
      if (family_.style != api::CallStyle::tagged) return json_schema_element(builder_, form_.schemas[tool]);
      const TaggedForm tags{.open = text(family_.key_open),
                            .middle = text(family_.value_open),
                            .close = text(family_.value_close),
                            .stop = stop(),
                            .json_middle = text(family_.json_open)};
      return tagged_schema_element(builder_, form_.schemas[tool], tags);
    } catch (const UsageError& e) {
      throw UsageError("tool {}: {}", form_.choices[tool], e.what());
    }
  }
  std::string stop() const {
    std::string close = family_.value_close;
    std::erase(close, '\n');
    return close;
  }

  // Any of the tools' calls; a rule of its own, since it comes again.
  Sequence one_call() {
    if (!one_call_) {
      std::vector<Sequence> ways;
      for (size_t i = 0; i < form_.choices.size(); ++i)
        ways.push_back(text(family_.open) + named(i) + text(family_.middle) + Sequence{arguments(i)} +
                       text(family_.close));
      one_call_ = builder_.one_of(ways);
    }
    return {*one_call_};
  }

  GrammarBuilder& builder_;
  const api::OutputForm& form_;
  const api::ToolFamily& family_;
  std::optional<Element> one_call_;
};

}  // namespace

Element tool_calls_element(GrammarBuilder& builder, const api::OutputForm& form) {
  CallGrammar grammar(builder, form);
  if (!form.may_be_text) return builder.one_of({form.has_marker ? grammar.marked_calls() : grammar.calls()});
  switch (form.tool_format) {
    case api::ToolFormat::harmony: return builder.one_of({grammar.answer_of_harmony()});
    case api::ToolFormat::functionary_v32: return builder.one_of({grammar.answer_of_functionary()});
    default: break;
  }
  throw UsageError("the calls of {} begin with a mark: their form is that of what follows it",
                   api::tool_family(form.tool_format).name);
}

Element harmony_asides(GrammarBuilder& builder) {
  const auto mark = [&](const char* spelling) { return mark_element(builder, spelling); };
  const Element channel = builder.one_of({builder.literal("analysis"), builder.literal("commentary")});
  const Sequence aside{mark("<|channel|>"), channel,
                       mark("<|message|>"), text_without(builder, kHarmonyMarks),
                       mark("<|end|>"),     mark("<|start|>")};
  return builder.repeat(aside + builder.literal("assistant"), 0, kUnbounded);
}

}  // namespace weft::constrain
