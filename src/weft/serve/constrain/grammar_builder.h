// GrammarBuilder: puts a Grammar together, within limits.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/base/error.h"
#include "weft/serve/constrain/code_points.h"
#include "weft/serve/constrain/grammar.h"

namespace weft::constrain {

// One behind the other.
inline Sequence operator+(Sequence a, const Sequence& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct GrammarLimits {
  size_t rules = size_t(1) << 17;
  size_t elements = size_t(1) << 19;
  int64_t repeats = 10'000;  // what {m,n} may count to
};

constexpr int64_t kUnbounded = -1;
constexpr int kDeepest = 200;  // of what a form is written in: groups or schemas inside each other

class NoText : public UsageError {
 public:
  NoText() : UsageError("no text can have this form: every way through it is endless or empty") {}
};

// Every call throws UsageError when a limit is passed.
class GrammarBuilder {
 public:
  explicit GrammarBuilder(const GrammarLimits& limits = {}) : limits_(limits) {}
  const GrammarLimits& limits() const { return limits_; }

  // A rule matches one of its alternatives; nothing while it has none. `name` is what errors say.
  RuleId add_rule(std::string name = {});
  void add_alternative(RuleId rule, const Sequence& sequence);
  static Element rule(RuleId id) { return {Element::Kind::rule, id}; }

  Element bytes(const ByteSet& set);
  Element code_points(const CodePoints& set);  // one of them, in UTF-8
  Sequence literal(std::string_view text);
  Element one_of(const std::vector<Sequence>& alternatives);
  Element one_of_texts(std::vector<std::string> texts);  // sharing what they begin with
  Element optional(const Sequence& sequence) { return repeat(sequence, 0, 1); }
  // min to max times, or kUnbounded; counts over the limit are refused.
  Element repeat(const Sequence& sequence, int64_t min, int64_t max);

  // Drops alternatives that no text can match. Throws NoText when nothing is left, and UsageError for left recursion,
  // naming the rule.
  Grammar finish(RuleId root) &&;

 private:
  struct Rule {
    std::string name;
    std::vector<Sequence> alternatives;
  };
  Element as_element(const Sequence& sequence);
  RuleId trie_of(const std::vector<std::string>& texts, size_t begin, size_t end, size_t depth);
  std::vector<bool> satisfied(bool with_bytes) const;
  void drop_unmatchable(const std::vector<bool>& is_productive);
  void refuse_left_recursion() const;

  GrammarLimits limits_;
  std::vector<Rule> rules_;
  std::vector<ByteSet> sets_;
  std::unordered_map<ByteSet, uint32_t> set_index_;
  std::map<CodePoints, Element> class_index_;
  size_t num_elements_ = 0;
};

}  // namespace weft::constrain
