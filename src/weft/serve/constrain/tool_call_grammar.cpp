// Tool calls as grammars: what stands between calls and around them is that of the format.
#include "weft/serve/constrain/tool_call_grammar.h"

#include "weft/base/error.h"
#include "weft/serve/constrain/json_schema.h"

namespace weft::constrain {
namespace {

constexpr int64_t kMostCalls = 16;

Sequence call_of(GrammarBuilder& builder, const api::OutputForm& form, size_t tool) {
  Sequence call = builder.literal(api::call_beginning(form.tool_format, form.choices[tool]));
  try {
    call.push_back(json_schema_element(builder, form.schemas[tool]));
  } catch (const UsageError& e) {
    throw UsageError("tool {}: {}", form.choices[tool], e.what());
  }
  return call + builder.literal("}");
}

}  // namespace

Element tool_calls_element(GrammarBuilder& builder, const api::OutputForm& form) {
  struct Around {
    const char *first, *behind, *between, *last;
  };
  const auto around = [&]() -> Around {
    switch (form.tool_format) {
      case api::ToolFormat::hermes: return {"", "\n</tool_call>", "\n<tool_call>\n", ""};
      case api::ToolFormat::llama: return {"", "", "; ", ""};
      case api::ToolFormat::mistral: break;
    }
    return {"[", "", ", ", "]"};
  }();
  std::vector<Sequence> calls;
  for (size_t i = 0; i < form.choices.size(); ++i) calls.push_back(call_of(builder, form, i));
  const Sequence one = Sequence{builder.one_of(calls)} + builder.literal(around.behind);
  const Sequence more = form.is_parallel
                            ? Sequence{builder.repeat(builder.literal(around.between) + one, 0, kMostCalls - 1)}
                            : Sequence();
  // A model that begins a call by itself may go on in a new line, or behind a space, or not.
  const char* const between = form.tool_format == api::ToolFormat::hermes ? "\n" : " ";
  const Sequence space = form.trigger.empty() || form.is_whole_answer
                             ? Sequence()
                             : Sequence{builder.repeat(builder.literal(between), 0, 1)};
  return builder.one_of({space + builder.literal(around.first) + one + more + builder.literal(around.last)});
}

}  // namespace weft::constrain
