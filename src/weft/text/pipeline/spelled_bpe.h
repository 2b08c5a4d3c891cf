// SpelledBpe: byte-pair encoding whose merges are the vocabulary itself: two neighbours join when what they spell
// together is a token, the best token first. SentencePiece's and tiktoken's way.
#pragma once
#include <optional>

#include "weft/text/pipeline/byte_trie.h"
#include "weft/text/pipeline/merge_symbols.h"
#include "weft/text/pipeline/subword_model.h"

namespace weft {

struct SpelledBpeOptions {
  std::optional<int32_t> unknown;
  bool byte_fallback = false;
  bool ignore_merges = false;        // a piece that is a token stays one
  std::vector<int32_t> frozen;       // tokens that are found in the text first and take part in no merge
  std::vector<int32_t> taken_apart;  // tokens that merges may pass through but that are not used
};

class SpelledBpe : public SubwordModel {
 public:
  static constexpr uint32_t kNoMerge = UINT32_MAX;
  // ranks[id]: the lowest is merged first; kNoMerge: never, and no text is this token.
  SpelledBpe(Vocabulary vocabulary, std::vector<uint32_t> ranks, const SpelledBpeOptions& options);

  std::string_view name() const override { return "bpe"; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  int32_t find(std::string_view spelling) const;
  std::vector<Symbol> symbols_of(std::string_view piece) const;

  Vocabulary vocabulary_;
  std::vector<uint32_t> ranks_;  // by id
  std::vector<bool> is_taken_apart_;
  bool takes_apart_ = false;
  ByteTrie frozen_;
  ByteTokens bytes_;
  std::optional<int32_t> unknown_;
  bool byte_fallback_, ignore_merges_;
};

// The ranks of tokens with these scores: the highest first, equal for equal scores.
std::vector<uint32_t> ranks_of_scores(const std::vector<std::optional<float>>& scores);

}  // namespace weft
