// The vocabulary of a recipe that nothing is read for but its tokenizer.
#pragma once
#include "weft/train/recipe.h"

namespace weft::app {

// Sets what model.vocab leaves to the tokenizer. Throws UsageError where that depends on the text: "char".
void settle_vocab(Recipe& recipe);

}  // namespace weft::app
