// ByteTrie: built from sorted keys, a level at a time.
#include "weft/text/pipeline/byte_trie.h"

#include <algorithm>

namespace weft {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries) : nodes_(1) {
  std::erase_if(entries, [](const auto& entry) { return entry.first.empty(); });
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {  // the entries below a node: equal in their first `depth` bytes
    size_t begin, end, depth;
    uint32_t node;
  };
  std::vector<Range> open = {{0, entries.size(), 0, 0}};
  for (size_t next = 0; next < open.size(); ++next) {
    Range range = open[next];
    if (range.begin < range.end && entries[range.begin].first.size() == range.depth) {
      nodes_[range.node].value = entries[range.begin].second;
      while (range.begin < range.end && entries[range.begin].first.size() == range.depth) ++range.begin;
    }
    nodes_[range.node].first_edge = uint32_t(labels_.size());
    while (range.begin < range.end) {
      const uint8_t label = uint8_t(entries[range.begin].first[range.depth]);
      size_t end = range.begin;
      while (end < range.end && uint8_t(entries[end].first[range.depth]) == label) ++end;
      const uint32_t node = uint32_t(nodes_.size());
      nodes_.emplace_back();
      labels_.push_back(label);
      targets_.push_back(node);
      ++nodes_[range.node].num_edges;
      if (range.node == 0) root_[label] = node;
      open.push_back({range.begin, end, range.depth + 1, node});
      range.begin = end;
    }
  }
}

}  // namespace weft
