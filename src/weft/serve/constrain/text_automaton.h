// TextAutomaton: a set of texts as a deterministic automaton, for what grammars cannot say: both of two, or one
// without another.
#pragma once
#include <array>
#include <functional>
#include <string_view>
#include <vector>

#include "weft/serve/constrain/grammar_builder.h"

namespace weft::constrain {

// Over the bytes of UTF-8. Everything that makes one throws UsageError when it needs over kMostStates states.
class TextAutomaton {
 public:
  static constexpr size_t kMostStates = size_t(1) << 12;
  static constexpr int32_t kNowhere = -1;
  using Row = std::array<int32_t, 256>;  // where each byte leads

  TextAutomaton(std::vector<Row> rows, std::vector<bool> accepts);  // from row 0
  // What `make` builds, which must not hold itself but at its end: then the states of a Matcher are few.
  static TextAutomaton of(const std::function<Element(GrammarBuilder&)>& make);
  static TextAutomaton all();
  static TextAutomaton of_regex(std::string_view expression);  // the match may lie anywhere

  TextAutomaton operator&(const TextAutomaton& other) const { return product(other, false); }
  TextAutomaton operator-(const TextAutomaton& other) const { return product(other, true); }
  TextAutomaton of_length(int64_t min, int64_t max) const;  // those of so many code points; max may be kUnbounded
  bool is_empty() const;
  bool contains(std::string_view text) const;

  // As grammar. spell: the ways to write a byte that does not stand for itself; else none.
  using Spell = std::function<std::vector<Sequence>(uint8_t byte)>;
  Element element(GrammarBuilder& builder, const Spell& spell) const;

 private:
  TextAutomaton product(const TextAutomaton& other, bool is_difference) const;

  std::vector<Row> rows_;
  std::vector<bool> accepts_;
};

}  // namespace weft::constrain
