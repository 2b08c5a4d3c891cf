// HeadShare: which heads of a layer each rank attends with when every rank holds all tokens.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace weft {

// Heads are cut as evenly as they divide; a rank may get none. It needs every key/value head that its query heads
// use, hence some key/value heads go to several ranks.
struct HeadShare {
  int64_t first_head = 0, num_heads = 0, first_kv_head = 0, num_kv_heads = 0;

  static HeadShare of(int64_t heads, int64_t kv_heads, int rank, int size) {
    const int64_t group = heads / kv_heads, first = heads * rank / size, end = heads * (rank + 1) / size;
    if (first == end) return {};
    const int64_t first_kv = first / group;
    return {first, end - first, first_kv, (end - 1) / group + 1 - first_kv};
  }
};

// Query heads that share their key/value heads evenly, as the kernels want them.
struct HeadRun {
  int64_t first_head = 0, num_heads = 0, first_kv_head = 0, num_kv_heads = 0;
};

// A share as runs: the rest of a group of heads, whole groups, the beginning of one.
struct HeadRuns {
  static constexpr int kMost = 3;
  std::array<HeadRun, kMost> runs;
  int count = 0;

  const HeadRun& operator[](int i) const { return runs[size_t(i)]; }

  HeadRuns(const HeadShare& share, int64_t group) {
    const int64_t end = share.first_head + share.num_heads;
    for (int64_t head = share.first_head; head < end;) {
      const int64_t whole = head % group == 0 ? (end - head) / group : 0;
      const int64_t heads = whole ? whole * group : std::min((head / group + 1) * group, end) - head;
      runs[size_t(count++)] = {head, heads, head / group, whole ? whole : 1};
      head += heads;
    }
  }
};

}  // namespace weft
