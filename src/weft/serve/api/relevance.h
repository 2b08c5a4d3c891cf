// Relevance: whether a document answers a query, by a model that was trained to say "yes" or "no" to that, or to
// score such pairs.
#pragma once
#include <string>
#include <string_view>

#include "weft/text/chat_template.h"
#include "weft/text/tokenizer.h"

namespace weft::api {

class Relevance {
 public:
  // Writes messages of the roles "query" and "document", and before them "system" for an instruction; these are also
  // variables: `query`, `document`, `instruction`. Throws UsageError where a word is not one token.
  Relevance(ChatTemplate chat, const Tokenizer& tokenizer, std::string_view yes, std::string_view no);
  // By the one label of a model that scores texts.
  explicit Relevance(ChatTemplate chat) : chat_(std::move(chat)), tokens_{0} {}

  // What Qwen3-Reranker reads (Zhang et al., "Qwen3 Embedding", 2025).
  static constexpr std::string_view kQwen3 = "qwen3";
  static ChatTemplate qwen3();

  std::string prompt(const std::string& query, const std::string& document, const std::string& instruction) const;
  // The tokens behind the prompt whose logits score() reads: of yes, of no; or the label.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  // The probability of yes where it is yes or no, or that of the label.
  static double score(std::span<const float> logits);

 private:
  ChatTemplate chat_;
  std::vector<int32_t> tokens_;
};

}  // namespace weft::api
