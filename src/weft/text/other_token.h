// first_other_token: whether two tokenizers speak of the same tokens.
#pragma once
#include <optional>

#include "weft/text/tokenizer.h"

namespace weft {

// The first token of `one` that `other` has not, or calls otherwise; nothing where it has them all.
inline std::optional<int32_t> first_other_token(const Tokenizer& one, const Tokenizer& other) {
  for (int32_t id = 0; id < one.vocab_size(); ++id)
    if (id >= other.vocab_size() || one.spelling(id) != other.spelling(id) ||
        one.is_special(id) != other.is_special(id))
      return id;
  return {};
}

}  // namespace weft
