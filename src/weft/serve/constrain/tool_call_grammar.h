// Tool calls as grammars: what a model writes that must call one of some tools, or may.
#pragma once
#include "weft/serve/api/served_model.h"
#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {

// Before the spelling of a control token, where that may stand for the text: no text has this byte, and TokenMasks
// begin the bytes of such tokens with it.
constexpr char kControlByte = char(0xFF);

// What follows marker_before(), or the trigger: calls with arguments of their tools' schemas, spaced as templates
// space them; of a parallel form up to 16 of them. What the family's markers spell may be written by control tokens.
// Of a form that may be text, the whole answer. Throws UsageError naming the tool whose schema is not supported.
Element tool_calls_element(GrammarBuilder& builder, const api::OutputForm& form);

}  // namespace weft::constrain
