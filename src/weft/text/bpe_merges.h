// BpeMerges: which neighbours to merge, learned from words and how often each comes.
#pragma once
#include <cstdint>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/text/pipeline/vocabulary.h"

namespace weft {

// All words lie one behind the other as symbols, each linked to its neighbours. For every pair of symbols that stand
// together it is known how often they do and where, so a merge costs what it changes; a heap has the most frequent on
// top, and what a merge has outdated is noticed when it gets there.
class BpeMerges {
 public:
  struct Word {
    std::string_view bytes;
    int64_t count;
  };
  // Ids of bytes are their values; merges make ids from 256 on.
  BpeMerges(const std::vector<Word>& words, int64_t min_count, size_t max_token_bytes);

  struct Merge {
    int32_t left, right;
  };
  // Does the next merge: of the pair that comes most often, of equal ones that with the lowest ids. Nothing when no
  // pair comes often enough.
  std::optional<Merge> next();

  const Vocabulary& vocabulary() const { return vocabulary_; }  // spelled as bytes

 private:
  struct Symbol {
    int32_t id;
    uint32_t word;
    uint32_t previous, next;  // kNone at the ends of a word
  };
  struct Pair {
    int32_t left, right;
    int64_t count = 0;
    std::vector<uint32_t> places;  // of the left symbol; some may be outdated
  };
  struct Candidate {
    int64_t count;
    int32_t left, right;
    uint32_t pair;
    bool operator<(const Candidate& other) const {
      if (count != other.count) return count < other.count;
      return left != other.left ? left > other.left : right > other.right;
    }
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t pair_of(int32_t left, int32_t right);
  void count_pair(uint32_t place, int64_t count);  // the symbol there and the next, `count` times more
  void merge_at(uint32_t place, int32_t id);
  bool may_merge(const Pair& pair) const;

  int64_t min_count_;
  size_t max_token_bytes_;
  Vocabulary vocabulary_;
  std::vector<int64_t> counts_;  // of words
  std::vector<Symbol> symbols_;
  std::vector<Pair> pairs_;
  std::unordered_map<uint64_t, uint32_t> pair_index_;
  std::priority_queue<Candidate> heap_;
  std::vector<uint32_t> grown_;  // pairs that the merge under way made more frequent
};

}  // namespace weft
