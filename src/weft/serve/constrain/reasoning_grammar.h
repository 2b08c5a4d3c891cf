// Reasoning as grammar: what a model may think before the form of its answer begins.
#pragma once
#include "weft/serve/api/served_model.h"
#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {

// What stands before the form's own text: nothing where the model does not think. Its thoughts have an end, since no
// token that ends the answer can come among them.
Sequence reasoning_before(GrammarBuilder& builder, const api::OutputForm& form);

}  // namespace weft::constrain
