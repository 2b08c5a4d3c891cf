// Grammar: a context-free grammar over bytes, as the flat arrays that a Matcher walks.
#pragma once
#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::constrain {

using ByteSet = std::bitset<256>;

// What a place in a grammar asks for: one byte of a set, or what a rule matches; or it is the end of an alternative.
struct Element {
  enum class Kind : uint8_t { bytes, rule, end };
  Kind kind = Kind::end;
  uint32_t index = 0;  // of the set or the rule
};
using Sequence = std::vector<Element>;
using RuleId = uint32_t;

// Immutable and safe to share among threads. Every rule matches some text that ends, and no rule calls itself with
// something left to do before a byte was read (left recursion), so that a Matcher's steps come to an end.
class Grammar {
 public:
  const Element& element(uint32_t position) const { return elements_[position]; }
  const ByteSet& set(uint32_t index) const { return sets_[index]; }
  size_t num_sets() const { return sets_.size(); }
  // The positions where the alternatives of a rule begin.
  std::span<const uint32_t> alternatives(RuleId rule) const {
    return std::span(alternatives_)
        .subspan(first_alternative_[rule], first_alternative_[rule + 1] - first_alternative_[rule]);
  }
  RuleId root() const { return root_; }

 private:
  friend class GrammarBuilder;
  std::vector<Element> elements_;
  std::vector<ByteSet> sets_;
  std::vector<uint32_t> alternatives_, first_alternative_;
  RuleId root_ = 0;
};

}  // namespace weft::constrain
