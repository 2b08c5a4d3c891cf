// GrammarBuilder: repetitions become rules that call themselves last; the checks are fixed points over all rules.
#include "weft/serve/constrain/grammar_builder.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft::constrain {

RuleId GrammarBuilder::add_rule(std::string name) {
  if (rules_.size() >= limits_.rules) throw UsageError("the form is too large: over {} rules", limits_.rules);
  rules_.push_back({std::move(name), {}});
  return RuleId(rules_.size() - 1);
}

void GrammarBuilder::add_alternative(RuleId rule, const Sequence& sequence) {
  num_elements_ += sequence.size() + 1;
  if (num_elements_ > limits_.elements) throw UsageError("the form is too large: over {} elements", limits_.elements);
  rules_[rule].alternatives.push_back(sequence);
}

Element GrammarBuilder::bytes(const ByteSet& set) {
  const auto [entry, is_new] = set_index_.try_emplace(set, uint32_t(sets_.size()));
  if (is_new) sets_.push_back(set);
  return {Element::Kind::bytes, entry->second};
}

Element GrammarBuilder::code_points(const CodePoints& set) {
  const CodePoints tidied = tidy(set);
  if (const auto known = class_index_.find(tidied); known != class_index_.end()) return known->second;
  const std::vector<ByteSequences> sequences = utf8_of(tidied);
  Element element;
  if (sequences.empty() || (sequences.size() == 1 && sequences[0].tail.empty())) {
    element = bytes(sequences.empty() ? ByteSet() : sequences[0].lead);
  } else {
    const RuleId id = add_rule();
    for (const ByteSequences& one : sequences) {
      Sequence sequence{bytes(one.lead)};
      for (const ByteRange& range : one.tail) {
        ByteSet tail;
        for (int byte = range.first; byte <= range.last; ++byte) tail.set(size_t(byte));
        sequence.push_back(bytes(tail));
      }
      add_alternative(id, sequence);
    }
    element = rule(id);
  }
  class_index_.emplace(tidied, element);
  return element;
}

Sequence GrammarBuilder::literal(std::string_view text) {
  Sequence sequence;
  for (const char c : text) sequence.push_back(bytes(ByteSet().set(uint8_t(c))));
  return sequence;
}

Element GrammarBuilder::one_of(const std::vector<Sequence>& alternatives) {
  if (alternatives.size() == 1) return as_element(alternatives[0]);
  const RuleId id = add_rule();
  for (const Sequence& alternative : alternatives) add_alternative(id, alternative);
  return rule(id);
}

Element GrammarBuilder::one_of_texts(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return rule(trie_of(texts, 0, texts.size(), 0));
}

// Of sorted texts that agree in their first `depth` bytes.
RuleId GrammarBuilder::trie_of(const std::vector<std::string>& texts, size_t begin, size_t end, size_t depth) {
  const RuleId id = add_rule();
  if (begin < end && texts[begin].size() == depth) {
    add_alternative(id, {});
    ++begin;
  }
  while (begin < end) {
    size_t last = begin + 1, common = depth + 1;
    while (last < end && texts[last][depth] == texts[begin][depth]) ++last;
    const std::string &low = texts[begin], &high = texts[last - 1];
    while (common < low.size() && low[common] == high[common]) ++common;
    Sequence sequence = literal(std::string_view(low).substr(depth, common - depth));
    if (last - begin > 1) sequence.push_back(rule(trie_of(texts, begin, last, common)));
    add_alternative(id, sequence);
    begin = last;
  }
  return id;
}

Element GrammarBuilder::as_element(const Sequence& sequence) {
  if (sequence.size() == 1) return sequence[0];
  const RuleId id = add_rule();
  add_alternative(id, sequence);
  return rule(id);
}

Element GrammarBuilder::repeat(const Sequence& sequence, int64_t min, int64_t max) {
  if (std::max(min, max) > limits_.repeats)
    throw UsageError("a repetition counts to {}, and {} are allowed", std::max(min, max), limits_.repeats);
  if (max != kUnbounded && max < min) throw UsageError("a repetition asks for at least {} and at most {}", min, max);
  const Element body = as_element(sequence);
  if (min == 1 && max == 1) return body;
  Sequence whole(size_t(min), body);
  if (max == kUnbounded) {
    const RuleId more = add_rule();
    add_alternative(more, {body, rule(more)});
    add_alternative(more, {});
    if (min == 0) return rule(more);
    whole.push_back(rule(more));
  } else if (max > min) {
    RuleId rest = add_rule();
    add_alternative(rest, {body});
    add_alternative(rest, {});
    for (int64_t i = min + 1; i < max; ++i) {
      const RuleId longer = add_rule();
      add_alternative(longer, {body, rule(rest)});
      add_alternative(longer, {});
      rest = longer;
    }
    if (min == 0) return rule(rest);
    whole.push_back(rule(rest));
  }
  const RuleId id = add_rule();
  add_alternative(id, whole);
  return rule(id);
}

// Which rules have an alternative whose elements are all satisfied: rules that are, and, with_bytes, sets of bytes
// that are not empty. with_bytes: the rules that match some text; otherwise those that match the empty one.
std::vector<bool> GrammarBuilder::satisfied(bool with_bytes) const {
  std::vector<bool> is_satisfied(rules_.size());
  struct Waiting {
    RuleId rule;
    size_t missing = 0;
  };
  std::vector<Waiting> alternatives;
  std::vector<std::vector<size_t>> waits_for(rules_.size());  // alternatives by what they miss
  std::vector<RuleId> open;
  const auto settle = [&](RuleId id) {
    if (is_satisfied[id]) return;
    is_satisfied[id] = true;
    open.push_back(id);
  };
  for (RuleId id = 0; id < rules_.size(); ++id) {
    for (const Sequence& sequence : rules_[id].alternatives) {
      Waiting waiting{.rule = id};
      for (const Element& e : sequence) {
        if (e.kind == Element::Kind::rule) waits_for[e.index].push_back(alternatives.size());
        waiting.missing += e.kind == Element::Kind::rule || !with_bytes || sets_[e.index].none();
      }
      if (waiting.missing == 0) settle(id);
      alternatives.push_back(waiting);
    }
  }
  while (!open.empty()) {
    const RuleId done = open.back();
    open.pop_back();
    for (const size_t index : waits_for[done]) {
      if (--alternatives[index].missing == 0) settle(alternatives[index].rule);
    }
  }
  return is_satisfied;
}

void GrammarBuilder::drop_unmatchable(const std::vector<bool>& is_productive) {
  for (Rule& rule : rules_) {
    std::erase_if(rule.alternatives, [&](const Sequence& sequence) {
      return std::any_of(sequence.begin(), sequence.end(), [&](const Element& e) {
        return e.kind == Element::Kind::rule ? !is_productive[e.index] : sets_[e.index].none();
      });
    });
  }
}

// An edge leads from a rule to one that it may call before a byte was read. Calls at the end of an alternative leave
// nothing to come back for; a circle of those alone is harmless.
void GrammarBuilder::refuse_left_recursion() const {
  const std::vector<bool> is_nullable = satisfied(false);
  struct Edge {
    RuleId to;
    bool comes_back;
  };
  std::vector<std::vector<Edge>> edges(rules_.size());
  for (RuleId id = 0; id < rules_.size(); ++id) {
    for (const Sequence& sequence : rules_[id].alternatives) {
      for (size_t i = 0; i < sequence.size() && sequence[i].kind == Element::Kind::rule; ++i) {
        edges[id].push_back({sequence[i].index, i + 1 < sequence.size()});
        if (!is_nullable[sequence[i].index]) break;
      }
    }
  }
  // Tarjan's strongly connected components, without recursion.
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> order(rules_.size(), kNone), low(rules_.size()), component(rules_.size(), kNone);
  std::vector<RuleId> members;
  struct Visit {
    RuleId rule;
    size_t next = 0;
  };
  uint32_t count = 0;
  for (RuleId first = 0; first < rules_.size(); ++first) {
    if (order[first] != kNone) continue;
    std::vector<Visit> path;
    const auto enter = [&](RuleId id) {
      order[id] = low[id] = count++;
      members.push_back(id);
      path.push_back({id});
    };
    enter(first);
    while (!path.empty()) {
      const RuleId id = path.back().rule;
      if (path.back().next < edges[id].size()) {
        const RuleId to = edges[id][path.back().next++].to;
        if (order[to] == kNone)
          enter(to);
        else if (component[to] == kNone)
          low[id] = std::min(low[id], order[to]);
        continue;
      }
      path.pop_back();
      if (!path.empty()) low[path.back().rule] = std::min(low[path.back().rule], low[id]);
      if (low[id] != order[id]) continue;
      for (RuleId member = kNone; member != id;) {
        member = members.back();
        members.pop_back();
        component[member] = id;
      }
    }
  }
  for (RuleId id = 0; id < rules_.size(); ++id) {
    for (const Edge& edge : edges[id]) {
      if (!edge.comes_back || component[edge.to] != component[id]) continue;
      RuleId named = id;
      for (RuleId other = 0; other < rules_.size() && rules_[named].name.empty(); ++other) {
        if (component[other] == component[id] && !rules_[other].name.empty()) named = other;
      }
      throw UsageError(
          "left recursion: the rule {} begins with itself; write it so that something is read first, or with a *",
          rules_[named].name);
    }
  }
}

Grammar GrammarBuilder::finish(RuleId root) && {
  const std::vector<bool> is_productive = satisfied(true);
  if (!is_productive[root]) throw NoText();
  drop_unmatchable(is_productive);
  refuse_left_recursion();
  Grammar grammar;
  grammar.root_ = root;
  grammar.sets_ = std::move(sets_);
  for (const Rule& rule : rules_) {
    grammar.first_alternative_.push_back(uint32_t(grammar.alternatives_.size()));
    for (const Sequence& sequence : rule.alternatives) {
      grammar.alternatives_.push_back(uint32_t(grammar.elements_.size()));
      grammar.elements_.insert(grammar.elements_.end(), sequence.begin(), sequence.end());
      grammar.elements_.push_back({});
    }
  }
  grammar.first_alternative_.push_back(uint32_t(grammar.alternatives_.size()));
  return grammar;
}

}  // namespace weft::constrain
