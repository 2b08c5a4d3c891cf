// Unigram: the cutting of a piece whose tokens are together the most likely, by Viterbi's algorithm.
#pragma once
#include <optional>

#include "weft/text/pipeline/byte_trie.h"
#include "weft/text/pipeline/subword_model.h"

namespace weft {

// How far an unknown character lies below the least likely token.
constexpr double kUnknownPenalty = 10;

struct UnigramOptions {
  std::optional<int32_t> unknown;
  double unknown_score = 0;  // of a character that no token covers
  bool byte_fallback = false;
  // How scores are summed: SentencePiece in float, Hugging Face in double; they can differ where two ways are equal
  // but for rounding.
  bool sums_in_float = false;
};

class Unigram : public SubwordModel {
 public:
  // scores[id] is the logarithm of a token's probability; nothing: the token is never used to cut a text.
  Unigram(Vocabulary vocabulary, std::vector<std::optional<double>> scores, UnigramOptions options);

  std::string_view name() const override { return "unigram"; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  // The best way to the place behind a character: its last token, which began at `start`.
  struct Step {
    double score = 0;
    uint32_t start = UINT32_MAX;  // UINT32_MAX: not reached yet
    int32_t id = -1;              // -1: unknown
  };
  std::vector<Step> best_steps(std::string_view piece) const;
  double sum(double a, double b) const { return options_.sums_in_float ? double(float(a + b)) : a + b; }

  Vocabulary vocabulary_;
  std::vector<double> scores_;  // by id
  ByteTrie trie_;
  UnigramOptions options_;
  ByteTokens bytes_;
};

}  // namespace weft
