// Vocabulary: spellings and their ids, both ways, in two blocks of memory.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class Vocabulary {
 public:
  explicit Vocabulary(std::string_view origin = "the vocabulary") : origin_(origin) {}  // what errors name
  void reserve(size_t tokens);
  // Throws Error when the id is taken or outside the limits, or the spelling too long. A spelling that is there
  // already keeps its first id; both ids give it back.
  void add(std::string_view spelling, int32_t id);

  int32_t find(std::string_view spelling) const;  // -1: not there
  bool has(int32_t id) const { return id >= 0 && id < size() && entries_[size_t(id)].begin != kAbsent; }
  std::string_view spelling(int32_t id) const;               // of an id that is there
  int32_t size() const { return int32_t(entries_.size()); }  // the largest id + 1
  size_t longest() const { return longest_; }                // bytes of a spelling

 private:
  static constexpr uint32_t kAbsent = UINT32_MAX;
  struct Entry {
    uint32_t begin = kAbsent, length = 0;
  };
  void grow(size_t slots);

  std::string origin_, text_;
  std::vector<Entry> entries_;  // by id
  std::vector<int32_t> slots_;  // a hash table of ids, -1: free; at most half full
  size_t count_ = 0, longest_ = 0;
};

}  // namespace weft
