// ByteTrie: finds the strings of a set that begin at a place of a text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

class ByteTrie {
 public:
  ByteTrie() : nodes_(1) {}
  // Of equal keys the first value counts; empty keys are left out.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries);

  // Calls visit(length, value) for every key that `text` begins with, shortest first.
  template <class Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, uint8_t(text[i]));
      if (node == 0) return;
      if (nodes_[node].value >= 0) visit(i + 1, nodes_[node].value);
    }
  }

  struct Match {
    size_t length = 0;  // 0: none
    int32_t value = -1;
  };
  Match longest_prefix(std::string_view text) const {
    Match longest;
    for_each_prefix(text, [&](size_t length, int32_t value) { longest = {length, value}; });
    return longest;
  }

  bool empty() const { return nodes_.size() == 1; }
  bool may_begin_with(char first) const { return root_[uint8_t(first)] != 0; }

 private:
  struct Node {
    uint32_t first_edge = 0;
    uint32_t num_edges = 0;
    int32_t value = -1;
  };
  uint32_t child(uint32_t node, uint8_t byte) const {  // 0, the root, is nobody's child
    if (node == 0) return root_[byte];
    const Node& n = nodes_[node];
    for (uint32_t e = n.first_edge; e < n.first_edge + n.num_edges; ++e) {
      if (labels_[e] >= byte) return labels_[e] == byte ? targets_[e] : 0;
    }
    return 0;
  }

  std::vector<Node> nodes_;
  std::vector<uint8_t> labels_;  // of edges, ascending within a node
  std::vector<uint32_t> targets_;
  uint32_t root_[256] = {};
};

}  // namespace weft
