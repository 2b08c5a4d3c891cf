// The ways to cut a text at what a pattern matches.
#pragma once
#include <vector>

#include "weft/text/pipeline/pieces.h"
#include "weft/text/pipeline/pre_tokenizer.h"

namespace weft {

// A stretch of text that a pattern matches or that lies between its matches.
struct Stretch {
  Span span;
  bool is_match = false;
};

// `stretches` cover a text without gaps; appends the pieces that `behavior` makes of them to `out`, none empty.
void split_stretches(std::vector<Stretch>& stretches, SplitBehavior behavior, bool invert, std::vector<Span>& out);

}  // namespace weft
