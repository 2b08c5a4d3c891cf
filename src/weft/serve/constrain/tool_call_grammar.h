// Tool calls as grammars: what a model writes that must call one of some tools, or may.
#pragma once
#include "weft/serve/api/served_model.h"
#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {

// What follows marker_before(), or the trigger, or of a form with the marker both: calls with arguments of their
// tools' schemas, spaced as templates space them; of a parallel form up to 16 of them. What the family's markers
// spell may be written by control tokens. Of a form that may be text, the whole answer. Throws UsageError naming the
// tool whose schema is not supported.
Element tool_calls_element(GrammarBuilder& builder, const api::OutputForm& form);

// The parts of an answer in harmony that are thoughts or comments: any number of them, each up to where the next part
// begins.
Element harmony_asides(GrammarBuilder& builder);

}  // namespace weft::constrain
