// Reasoning as grammar: any text without the closing mark, then that.
#include "weft/serve/constrain/reasoning_grammar.h"

#include "weft/serve/constrain/control_marks.h"
#include "weft/serve/constrain/regex_grammar.h"
#include "weft/serve/constrain/tool_call_grammar.h"

namespace weft::constrain {
namespace {

constexpr int64_t kMostLines = 2;  // between the mark and the content, as templates have them

Sequence reasoning_of_harmony(GrammarBuilder& builder, const api::OutputForm& form) {
  Sequence all{harmony_asides(builder)};
  if (form.kind == api::OutputForm::Kind::tool_calls) return all;
  all.push_back(mark_element(builder, "<|channel|>"));
  all = all + builder.literal("final");
  all.push_back(mark_element(builder, "<|message|>"));
  return all;
}

}  // namespace

Sequence reasoning_before(GrammarBuilder& builder, const api::OutputForm& form) {
  using Place = api::ReasoningPlace;
  if (form.reasoning == Place::outside) return {};
  if (form.reasoning_format == api::ReasoningFormat::harmony) return reasoning_of_harmony(builder, form);
  const api::ReasoningFamily& family = api::reasoning_family(form.reasoning_format);
  const Element space = builder.one_of({builder.literal("\n"), builder.literal(" ")});
  Sequence thoughts{text_without(builder, escaped_regex(family.close)), mark_element(builder, family.close),
                    builder.repeat({space}, 0, kMostLines)};
  if (*family.behind) thoughts.push_back(builder.optional({mark_element(builder, family.behind)}));
  if (form.reasoning == Place::inside) return thoughts;
  const Sequence begun = Sequence{builder.optional({space}), mark_element(builder, family.open)} + thoughts;
  return {builder.optional(begun)};
}

}  // namespace weft::constrain
