// Tokenizers of tiktoken files: a line for each token, its bytes in base64 and its rank.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/json.h"
#include "weft/text/tokenizer.h"

namespace weft {

// What such a file does not say: how its model cuts text, and its control tokens.
struct TiktokenScheme {
  std::string name;
  std::string pattern;
  std::vector<std::pair<std::string, int32_t>> control;
  std::string begin, end;  // of a document, among `control`; empty: none
  bool add_begin = false;  // by EncodeOptions::add_special
};

// One of those that are known; nothing for another name. `num_tokens` is how many the file holds: some models number
// their control tokens behind them.
std::optional<TiktokenScheme> tiktoken_scheme(std::string_view name, int32_t num_tokens);
std::string tiktoken_scheme_names();  // "cl100k_base, o200k_base, ..."

std::unique_ptr<Tokenizer> read_tiktoken(std::string_view text, const TiktokenScheme& scheme,
                                         std::string_view origin);
int32_t count_tiktoken_lines(std::string_view text);

// From to_json() of such a tokenizer.
std::unique_ptr<Tokenizer> parse_tiktoken_tokenizer(const JsonView& json, std::string_view origin);

}  // namespace weft
