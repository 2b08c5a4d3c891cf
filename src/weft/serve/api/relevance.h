// Relevance: whether a document answers a query, by a model that was trained to say "yes" or "no" to that, or to
// score such pairs, which an encoder reads as two texts.
#pragma once
#include <string>
#include <string_view>

#include "weft/pretrained/score_rule.h"
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer.h"

namespace weft::api {

class Relevance {
 public:
  // Writes messages of the roles "query" and "document", and before them "system" for an instruction; these are also
  // variables: `query`, `document`, `instruction`. Throws UsageError where a word is not one token.
  Relevance(ChatTemplate chat, const Tokenizer& tokenizer, std::string_view yes, std::string_view no);
  // By the one label of a model that scores texts, and what makes a score of it.
  Relevance(ChatTemplate chat, ScoreRule::Activation activation)
      : chat_(std::move(chat)), tokens_{0}, activation_(activation) {}
  Relevance(PairSurroundings around, ScoreRule::Activation activation)
      : around_(std::move(around)), tokens_{0}, activation_(activation) {}

  // What Qwen3-Reranker reads (Zhang et al., "Qwen3 Embedding", 2025).
  static constexpr std::string_view kQwen3 = "qwen3";
  static ChatTemplate qwen3();

  struct Prompt {
    std::vector<int32_t> ids;
    int64_t second_text = 0;  // where it begins, for an encoder; 0: it is one text
  };
  // Throws UsageError for an instruction that the model has no place for.
  Prompt prompt(const Tokenizer& tokenizer, const std::string& query, const std::string& document,
                const std::string& instruction) const;
  const std::optional<PairSurroundings>& around_pair() const { return around_; }  // of an encoder
  // The tokens behind the prompt whose logits score() reads: of yes, of no; or the label.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  // The probability of yes where it is yes or no; or that of the label, or the label's score.
  double score(std::span<const float> logits) const;

 private:
  std::string written(const std::string& query, const std::string& document, const std::string& instruction) const;

  std::optional<ChatTemplate> chat_;  // or
  std::optional<PairSurroundings> around_;
  std::vector<int32_t> tokens_;
  ScoreRule::Activation activation_ = ScoreRule::Activation::softmax;
};

}  // namespace weft::api
