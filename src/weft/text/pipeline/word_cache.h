// WordCache: the ids of pieces that were encoded before, since most pieces of a text come again.
#pragma once
#include "weft/text/pipeline/subword_model.h"

namespace weft {

// Lives as long as one call that encodes a text.
class WordCache {
 public:
  explicit WordCache(const SubwordModel& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<int32_t>& ids) {
    if (piece.size() > kLongestWord) return model_.encode(piece, ids);
    int32_t word = words_.find(piece);
    if (word < 0) {
      if (words_.size() == kMostWords) return model_.encode(piece, ids);
      model_.encode(piece, ids_);
      word = words_.size();
      words_.add(piece, word);
      ends_.push_back(ids_.size());
    }
    const size_t begin = word == 0 ? 0 : ends_[size_t(word) - 1];
    ids.insert(ids.end(), ids_.begin() + std::ptrdiff_t(begin), ids_.begin() + std::ptrdiff_t(ends_[size_t(word)]));
  }

 private:
  static constexpr size_t kLongestWord = 128;  // bytes; longer ones hardly repeat
  static constexpr int32_t kMostWords = 1 << 20;

  const SubwordModel& model_;
  Vocabulary words_;  // numbered as they came
  std::vector<int32_t> ids_;
  std::vector<size_t> ends_;  // in ids_, of each word
};

}  // namespace weft
