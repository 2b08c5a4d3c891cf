// Bpe: byte-pair encoding by a list of merges, as tokenizer.json describes it.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "weft/text/pipeline/pair_table.h"
#include "weft/text/pipeline/subword_model.h"

namespace weft {

struct BpeOptions {
  std::optional<int32_t> unknown;         // for characters outside the vocabulary; without one they vanish
  bool fuse_unknown = false;              // one such token for a run of them
  bool byte_fallback = false;             // rather than the unknown token, one for each byte, where these exist
  bool ignore_merges = false;             // a piece that is a token stays one, merges or not
  std::string continuing_subword_prefix;  // before every character but the first of a piece
  std::string end_of_word_suffix;         // behind the last
};

class Bpe : public SubwordModel {
 public:
  // `merges` by rank, as ids and what they become.
  struct MergeIds {
    int32_t left, right, merged;
  };
  Bpe(Vocabulary vocabulary, const std::vector<MergeIds>& merges, BpeOptions options);

  std::string_view name() const override { return "bpe"; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  void encode(std::string_view piece, std::vector<int32_t>& ids) const override;

 private:
  std::vector<Symbol> symbols_of(std::string_view piece) const;
  int32_t find_character(std::string_view character, bool is_first, bool is_last) const;

  Vocabulary vocabulary_;
  PairTable merges_;
  BpeOptions options_;
  ByteTokens bytes_;
};

}  // namespace weft
