// WordPiece: the longest token first, from left to right; a word that cannot be told in tokens is unknown as a whole.
#pragma once
#include <string>

#include "weft/text/pipeline/subword_model.h"

namespace weft {

struct WordPieceOptions {
  int32_t unknown = 0;
  std::string continuing_subword_prefix = "##";  // in the spelling of tokens that begin inside a word
  int64_t max_input_chars_per_word = 100;        // longer words are unknown
};

class WordPiece : public SubwordModel {
 public:
  WordPiece(Vocabulary vocabulary, WordPieceOptions options)
      : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {}

  std::string_view name() const override { return "wordpiece"; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  Vocabulary vocabulary_;
  WordPieceOptions options_;
};

}  // namespace weft
