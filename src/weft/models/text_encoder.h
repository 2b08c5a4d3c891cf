// TextEncoder: a model that reads texts as wholes, several in one pass, for vectors and scores of them.
#pragma once
#include "weft/models/text_rows.h"

namespace weft {

class TextEncoder {
 public:
  struct Sizes {
    int64_t vocab = 0;
    int64_t context = 0;  // tokens of a text
    int64_t hidden = 0;
    int64_t labels = 0;  // scores of a text; 0: it has none
  };

  virtual ~TextEncoder() = default;
  virtual Sizes sizes() const = 0;
  virtual TextRows no_texts() const = 0;  // as this model reads them, without any yet

  // The last layer's output for each row, [T, H]. Here and below: on the last stage; empty on the others. Tokens are
  // those of the vocabulary, and no text is longer than the context.
  virtual Var hidden(Context& context, const TextRows& texts) = 0;
  // Of what hidden() gave, [texts, labels]; UsageError without such a head.
  virtual Tensor scores(const Var& hidden, const TextRows& texts) = 0;
};

}  // namespace weft
