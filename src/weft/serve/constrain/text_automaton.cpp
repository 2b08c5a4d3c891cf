// TextAutomaton: subsets are those that a Matcher follows; products are made of the pairs that can be reached.
#include "weft/serve/constrain/text_automaton.h"

#include <algorithm>
#include <map>

#include "weft/base/error.h"
#include "weft/serve/constrain/matcher.h"
#include "weft/serve/constrain/regex_grammar.h"

namespace weft::constrain {
namespace {

using Row = TextAutomaton::Row;

// States by what they stand for, in the order in which they were met.
template <typename Key>
class States {
 public:
  int32_t number(const Key& key) {
    const auto [entry, is_new] = numbers_.try_emplace(key, int32_t(keys_.size()));
    if (is_new) {
      if (keys_.size() >= TextAutomaton::kMostStates)
        throw UsageError("what a text or number must have all at once is too large: over {} states",
                         TextAutomaton::kMostStates);
      keys_.push_back(&entry->first);
    }
    return entry->second;
  }
  const Key& key(size_t number) const { return *keys_[number]; }
  size_t size() const { return keys_.size(); }

 private:
  std::map<Key, int32_t> numbers_;
  std::vector<const Key*> keys_;
};

// Of each byte the first that no set of the grammar tells from it.
std::array<uint8_t, 256> first_alike(const Grammar& grammar) {
  std::array<uint8_t, 256> first{};
  std::map<std::vector<bool>, uint8_t> known;
  for (size_t byte = 0; byte < 256; ++byte) {
    std::vector<bool> sets;
    for (uint32_t i = 0; i < grammar.num_sets(); ++i) sets.push_back(grammar.set(i).test(byte));
    first[byte] = known.try_emplace(std::move(sets), uint8_t(byte)).first->second;
  }
  return first;
}

}  // namespace

TextAutomaton::TextAutomaton(std::vector<Row> rows, std::vector<bool> accepts)
    : rows_(std::move(rows)), accepts_(std::move(accepts)) {
  check(!rows_.empty() && rows_.size() == accepts_.size(), "an automaton has a first state");
}

TextAutomaton TextAutomaton::of(const std::function<Element(GrammarBuilder&)>& make) {
  GrammarBuilder builder;
  const RuleId root = builder.add_rule();
  builder.add_alternative(root, {make(builder)});
  const Grammar grammar = std::move(builder).finish(root);
  const std::array<uint8_t, 256> alike = first_alike(grammar);
  Matcher matcher(grammar);
  States<Matcher::State> states;
  states.number(matcher.start());
  std::vector<Row> rows;
  std::vector<bool> accepts;
  Matcher::State next;
  for (size_t i = 0; i < states.size(); ++i) {
    Row row{};
    for (size_t byte = 0; byte < 256; ++byte) {
      if (alike[byte] != byte)
        row[byte] = row[alike[byte]];
      else
        row[byte] = matcher.step(states.key(i), uint8_t(byte), next) ? states.number(next) : kNowhere;
    }
    rows.push_back(row);
    accepts.push_back(Matcher::may_end(states.key(i)));
  }
  return {std::move(rows), std::move(accepts)};
}

TextAutomaton TextAutomaton::all() {
  return of([](GrammarBuilder& b) { return b.repeat({b.code_points(complement({}))}, 0, kUnbounded); });
}

TextAutomaton TextAutomaton::of_regex(std::string_view expression) {
  return of([&](GrammarBuilder& builder) { return regex_element(builder, expression, {.searches = true}); });
}

TextAutomaton TextAutomaton::product(const TextAutomaton& other, bool is_difference) const {
  States<std::pair<int32_t, int32_t>> states;
  states.number({0, 0});
  std::vector<Row> rows;
  std::vector<bool> accepts;
  for (size_t i = 0; i < states.size(); ++i) {
    const auto [a, b] = states.key(i);
    Row row{};
    std::pair<int32_t, int32_t> last;
    for (size_t byte = 0; byte < 256; ++byte) {
      const int32_t to = rows_[size_t(a)][byte];
      const int32_t to_other = b == kNowhere ? kNowhere : other.rows_[size_t(b)][byte];
      const bool goes_on = to != kNowhere && (is_difference || to_other != kNowhere);
      if (byte == 0 || last != std::pair(to, to_other))  // neighbours mostly lead to the same
        row[byte] = goes_on ? states.number({to, to_other}) : kNowhere;
      else
        row[byte] = row[byte - 1];
      last = {to, to_other};
    }
    rows.push_back(row);
    const bool is_in_other = b != kNowhere && other.accepts_[size_t(b)];
    accepts.push_back(accepts_[size_t(a)] && is_in_other != is_difference);
  }
  return {std::move(rows), std::move(accepts)};
}

TextAutomaton TextAutomaton::of_length(int64_t min, int64_t max) const {
  States<std::pair<int32_t, int64_t>> states;  // with how many code points have begun; without a maximum up to min
  states.number({0, 0});
  std::vector<Row> rows;
  std::vector<bool> accepts;
  for (size_t i = 0; i < states.size(); ++i) {
    const auto [state, length] = states.key(i);
    Row row{};
    for (size_t byte = 0; byte < 256; ++byte) {
      const int32_t to = rows_[size_t(state)][byte];
      int64_t longer = length + ((byte & 0xC0) != 0x80);
      if (max == kUnbounded) longer = std::min(longer, min);
      row[byte] = to == kNowhere || (max != kUnbounded && longer > max) ? kNowhere : states.number({to, longer});
    }
    rows.push_back(row);
    accepts.push_back(accepts_[size_t(state)] && length >= min);
  }
  return {std::move(rows), std::move(accepts)};
}

// All states of a product can be reached, and so can those of a Matcher.
bool TextAutomaton::is_empty() const { return std::find(accepts_.begin(), accepts_.end(), true) == accepts_.end(); }

bool TextAutomaton::contains(std::string_view text) const {
  int32_t state = 0;
  for (const char c : text) {
    state = rows_[size_t(state)][uint8_t(c)];
    if (state == kNowhere) return false;
  }
  return accepts_[size_t(state)];
}

Element TextAutomaton::element(GrammarBuilder& builder, const Spell& spell) const {
  std::vector<RuleId> rules;
  for (size_t i = 0; i < rows_.size(); ++i) rules.push_back(builder.add_rule());
  std::array<std::vector<Sequence>, 256> spelled;
  for (size_t byte = 0; byte < 256; ++byte) spelled[byte] = spell(uint8_t(byte));
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (accepts_[i]) builder.add_alternative(rules[i], {});
    std::map<int32_t, ByteSet> plain;
    for (size_t byte = 0; byte < 256; ++byte) {
      const int32_t to = rows_[i][byte];
      if (to == kNowhere) continue;
      if (spelled[byte].empty()) plain[to].set(byte);
      for (const Sequence& way : spelled[byte])
        builder.add_alternative(rules[i], way + Sequence{GrammarBuilder::rule(rules[size_t(to)])});
    }
    for (const auto& [to, set] : plain)
      builder.add_alternative(rules[i], {builder.bytes(set), GrammarBuilder::rule(rules[size_t(to)])});
  }
  return GrammarBuilder::rule(rules[0]);
}

}  // namespace weft::constrain
