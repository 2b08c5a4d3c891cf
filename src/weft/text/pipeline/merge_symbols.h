// Merging of neighbours, lowest rank first: the loop at the heart of byte-pair encoding.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft {

// A stretch of the text being encoded, in a list of its neighbours. `length` 0: merged into the one before.
struct Symbol {
  uint32_t begin = 0, length = 0;
  int32_t id = -1;  // -1: no token (yet)
  int32_t previous = -1, next = -1;
};

// What two neighbours may become.
struct Merge {
  uint32_t rank = UINT32_MAX;  // the lowest is done first; UINT32_MAX: they stay apart
  int32_t id = -1;
  bool is_allowed() const { return rank != UINT32_MAX; }
};

// Links the symbols one after the other.
inline void link_symbols(std::vector<Symbol>& symbols) {
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = int32_t(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? int32_t(i) + 1 : -1;
  }
}

// Applies merges until none is left: the lowest rank first, of equal ones the leftmost. `find(left, right)` gives the
// Merge of two neighbours. Time n log n, by a heap of candidates; those that a merge has made stale are skipped.
template <class Find>
void merge_symbols(std::vector<Symbol>& symbols, Find find) {
  struct Candidate {
    uint32_t rank;
    int32_t left, right, id;
    uint32_t length;  // of both together: symbols only grow, so another length means another symbol
    bool operator<(const Candidate& other) const {  // std heaps have their largest on top
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::vector<Candidate> heap;
  const auto candidate = [&](int32_t left, int32_t right, auto put) {
    if (left < 0 || right < 0) return;
    const Symbol &l = symbols[size_t(left)], &r = symbols[size_t(right)];
    const Merge merge = find(l, r);
    if (merge.is_allowed()) put(Candidate{merge.rank, left, right, merge.id, l.length + r.length});
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i)
    candidate(int32_t(i), int32_t(i) + 1, [&](const Candidate& c) { heap.push_back(c); });
  std::make_heap(heap.begin(), heap.end());
  const auto push = [&](const Candidate& c) {
    heap.push_back(c);
    std::push_heap(heap.begin(), heap.end());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol &left = symbols[size_t(top.left)], &right = symbols[size_t(top.right)];
    if (left.length == 0 || left.next != top.right || left.length + right.length != top.length) continue;
    left.length = top.length;
    left.id = top.id;
    left.next = right.next;
    right.length = 0;
    if (right.next >= 0) symbols[size_t(right.next)].previous = top.left;
    candidate(left.previous, top.left, push);
    candidate(top.left, left.next, push);
  }
}

}  // namespace weft
