// Reads a Hugging Face tokenizer.json.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "weft/base/json.h"
#include "weft/text/tokenizer.h"

namespace weft {

// What a tokenizer.json does not say and the files beside it do: how its control tokens are spelled.
struct HfHints {
  std::string begin_of_document, end_of_document;  // empty: not told
};

std::unique_ptr<Tokenizer> read_hf_tokenizer(std::string_view text, std::string_view origin,
                                             const HfHints& hints = {});

// The text of the tokenizer.json that a tokenizer was read from; nothing for tokenizers of other files.
std::optional<std::string> hf_tokenizer_file(const Tokenizer& tokenizer);

// From to_json() of such a tokenizer.
std::unique_ptr<Tokenizer> parse_hf_tokenizer(const JsonView& json, std::string_view origin);

// Of tokenizer_config.json or special_tokens_map.json; `hints` keeps what is already there.
void read_hf_hints(std::string_view text, std::string_view origin, HfHints& hints);

}  // namespace weft
