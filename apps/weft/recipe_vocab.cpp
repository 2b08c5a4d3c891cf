// settle_vocab: the recipe's own number, or the tokenizer's.
#include "recipe_vocab.h"

#include "weft/pretrained/tokenizer_path.h"

namespace weft::app {

void settle_vocab(Recipe& recipe) {
  int64_t vocab = recipe.model.vocab;
  if (vocab == 0) {
    const std::string& tokenizer = recipe.data.tokenizer;
    if (tokenizer == "char")
      throw UsageError("data.tokenizer = \"char\": the vocabulary depends on the text: write model.vocab");
    vocab = open_tokenizer_path(FileSystem::real(), tokenizer, "data.tokenizer")->vocab_size();
  }
  set_vocab(recipe, vocab);
}

}  // namespace weft::app
