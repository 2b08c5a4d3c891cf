// Writes a tokenizer.json for a byte-level BPE vocabulary.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/text/pipeline/added_tokens.h"

namespace weft {

struct ByteLevelBpe {
  nlohmann::json vocabulary = nlohmann::json::object();  // spelling to id
  nlohmann::json merges = nlohmann::json::array();       // "a b", by rank
  std::vector<AddedToken> added;
  std::vector<std::string> patterns;  // text is cut by each in turn
  bool ignore_merges = false;
  std::vector<AddedToken> before, after;  // a text, with EncodeOptions::add_special
};

std::string to_tokenizer_json(ByteLevelBpe vocabulary);

// "post_processor": these tokens around a text; null without any.
nlohmann::json template_of(const std::vector<AddedToken>& before, const std::vector<AddedToken>& after);

}  // namespace weft
