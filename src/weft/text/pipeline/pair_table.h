// PairTable: the merges of a byte-pair vocabulary, by the two tokens that they join.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

#include "weft/text/pipeline/merge_symbols.h"

namespace weft {

class PairTable {
 public:
  explicit PairTable(size_t pairs) : slots_(std::bit_ceil(2 * pairs + 16)) {}

  // At most as many as the constructor was told; of equal pairs the last counts.
  void add(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[place(left, right)];
    slot = {left, right, merge};
  }
  Merge find(int32_t left, int32_t right) const { return slots_[place(left, right)].merge; }

 private:
  struct Slot {
    int32_t left = -1, right = -1;
    Merge merge;
  };
  size_t place(int32_t left, int32_t right) const {
    const size_t mask = slots_.size() - 1;
    uint64_t hash = (uint64_t(uint32_t(left)) << 32 | uint32_t(right)) * 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio
    size_t at = size_t(hash ^ hash >> 32) & mask;
    while (slots_[at].merge.is_allowed() && (slots_[at].left != left || slots_[at].right != right))
      at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;  // at most half full
};

}  // namespace weft
