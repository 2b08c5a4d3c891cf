// PastTokens: which tokens a text has, and how often its answer has each; follows a text as it grows.
#pragma once
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace weft {

class PastTokens {
 public:
  struct Entry {
    int32_t token;
    int32_t in_answer = 0;  // times
    bool in_prompt = false;
  };

  // The prompt is the same in every call. What an answer has behind what it had before is counted, and what it has no
  // more, as of draft tokens that were not accepted, is taken off.
  void follow(std::span<const int32_t> prompt, std::span<const int32_t> answer);
  // Each token once; of those that are no longer there an entry may stay.
  std::span<const Entry> entries() const { return entries_; }

 private:
  Entry& entry_of(int32_t token);

  size_t num_prompt_ = 0;        // tokens of it that were seen
  std::vector<int32_t> answer_;  // as it was followed
  std::vector<Entry> entries_;
  std::unordered_map<int32_t, size_t> places_;  // of tokens among entries
};

}  // namespace weft
