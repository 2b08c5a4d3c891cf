// Tool calls as grammars: what a model writes that must call one of some tools.
#pragma once
#include "weft/serve/api/served_model.h"
#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {

// What follows marker_before(): a call with arguments of its tool's schema, spaced as templates space it; of a
// parallel form up to 16 of them. Throws UsageError naming the tool whose schema is not supported.
Element tool_calls_element(GrammarBuilder& builder, const api::OutputForm& form);

}  // namespace weft::constrain
