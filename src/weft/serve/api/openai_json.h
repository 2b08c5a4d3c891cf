// Pieces of JSON that several of OpenAI's replies have in common.
#pragma once
#include <nlohmann/json.hpp>

#include "weft/serve/api/generation.h"

namespace weft::api {

nlohmann::json usage_json(const Progress& progress);
// What a chunk of a choice says of it: null, or how much there is so far where that is asked for.
nlohmann::json usage_of_chunk(const Progress& progress, const Choice& choice);
std::string finish_reason(const Choice& choice);  // "stop", "length", "tool_calls"
nlohmann::json tool_call_json(const NamedCall& call);
// {"content": [{"token", "bytes", "logprob", "top_logprobs"}]}
nlohmann::json chat_logprobs(const std::vector<TokenRecord>& tokens, TokenNames names);
// Where tokens stand in a text, in characters, of which one may take several tokens.
class TextOffset {
 public:
  explicit TextOffset(int64_t first = 0) : offset_(first) {}
  // Of the next token; of one within a character, the character's.
  int64_t next(std::string_view bytes);

 private:
  int64_t offset_;
  std::string unfinished_;  // of a character
};

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}; offset: of the first; moved on.
nlohmann::json completion_logprobs(const std::vector<TokenRecord>& tokens, TokenNames names, TextOffset& offset);
// As vLLM has them: null, then {"ID": {"logprob", "rank", "decoded_token"}} for each token of the prompt.
nlohmann::json prompt_logprobs_json(const std::vector<TokenRecord>& tokens);

}  // namespace weft::api
