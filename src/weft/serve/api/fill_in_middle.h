// FillInMiddle: how a model is asked for what stands between two texts. Source: Bavarian et al., "Efficient Training
// of Language Models to Fill in the Middle", 2022; the tokens are those that each family documents.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/text/tokenizer.h"

namespace weft::api {

struct FillInMiddle {
  int32_t prefix = -1, suffix = -1;  // stand before what comes before and behind
  std::optional<int32_t> middle;     // ends the prompt; of families that have one
  bool is_suffix_first = false;
  std::vector<int32_t> ends;  // any of them ends an answer, beside those that end every text

  // `before`: the tokens of the text before, perhaps with what begins every text. suffix: goes on in the middle of a
  // text, so that a tokenizer puts no space in front of it. Throws EncodeError.
  std::vector<int32_t> prompt(const Tokenizer& tokenizer, std::vector<int32_t> before, std::string_view suffix) const;
};

// By the tokens that the vocabulary has; nothing where none of the known families has them all.
std::optional<FillInMiddle> detect_fill_in_middle(const Tokenizer& tokenizer);

}  // namespace weft::api
