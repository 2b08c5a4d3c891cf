// Matcher: stacks as linked lists that share their lower ends; a rule called last leaves nothing to return to.
#include "weft/serve/constrain/matcher.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft::constrain {
namespace {

constexpr size_t kMostStacks = 4096, kMostNodes = size_t(1) << 22;
constexpr size_t kFirstSlots = 256;

}  // namespace

Matcher::Matcher(const Grammar& grammar) : grammar_(grammar), nodes_(1), seen_(1), slots_(kFirstSlots) {
  begin_closure();
  for (const uint32_t position : grammar.alternatives(grammar.root())) close(position, kEmpty, start_);
  std::sort(start_.begin(), start_.end());
}

size_t Matcher::slot_of(Node node) const {
  uint64_t hash = (uint64_t(node.position) << 32 | node.below) * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
  size_t slot = size_t(hash) & (slots_.size() - 1);
  while (slots_[slot] != 0) {
    const Node& other = nodes_[slots_[slot]];
    if (other.position == node.position && other.below == node.below) break;
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

void Matcher::grow() {
  slots_.assign(slots_.size() * 2, 0);
  for (size_t i = 1; i < nodes_.size(); ++i) slots_[slot_of(nodes_[i])] = uint32_t(i);
}

uint32_t Matcher::intern(uint32_t position, uint32_t below) {
  size_t slot = slot_of({position, below});
  if (slots_[slot] != 0) return slots_[slot];
  if (nodes_.size() >= kMostNodes)
    throw UsageError("the output's form is nested too deep or too ambiguous to follow");
  if (nodes_.size() * 2 >= slots_.size()) {
    grow();
    slot = slot_of({position, below});
  }
  slots_[slot] = uint32_t(nodes_.size());
  nodes_.push_back({position, below});
  seen_.push_back(0);
  return slots_[slot];
}

// In the reverse order of their coming: nobody's search runs past a slot that was filled later.
void Matcher::release(size_t mark) {
  while (nodes_.size() > mark) {
    slots_[slot_of(nodes_.back())] = 0;
    nodes_.pop_back();
    seen_.pop_back();
  }
}

void Matcher::begin_closure() {
  ++epoch_;
  open_.clear();
}

void Matcher::visit(uint32_t position, uint32_t below) {
  ++work_;
  const uint32_t node = intern(position, below);
  if (seen_[node] == epoch_) return;
  seen_[node] = epoch_;
  open_.push_back(node);
}

// Adds the stacks with a set of bytes on top that `position` on `below` comes down to.
void Matcher::close(uint32_t position, uint32_t below, State& state) {
  using Kind = Element::Kind;
  // What is left when the alternative that ends at `position` does.
  const auto go_on = [&](uint32_t at, uint32_t on) {
    if (grammar_.element(at).kind != Kind::end) return visit(at, on);
    if (on != kEmpty) return visit(nodes_[on].position, nodes_[on].below);
    if (seen_[kEmpty] != epoch_) state.push_back(kEmpty);
    seen_[kEmpty] = epoch_;
  };
  go_on(position, below);
  while (!open_.empty()) {
    const uint32_t id = open_.back();
    open_.pop_back();
    const Node node = nodes_[id];
    const Element element = grammar_.element(node.position);
    if (element.kind == Kind::bytes) {
      state.push_back(id);
      if (state.size() > kMostStacks)
        throw UsageError("the output's form is too ambiguous: over {} ways to go on", kMostStacks);
      continue;
    }
    const bool is_last = grammar_.element(node.position + 1).kind == Kind::end;
    const uint32_t after = is_last ? node.below : intern(node.position + 1, node.below);
    for (const uint32_t alternative : grammar_.alternatives(element.index)) go_on(alternative, after);
  }
}

bool Matcher::step(const State& from, uint8_t byte, State& to) {
  to.clear();
  begin_closure();
  for (const uint32_t id : from) {
    if (id == kEmpty) continue;
    ++work_;
    const Node node = nodes_[id];
    if (grammar_.set(grammar_.element(node.position).index).test(byte)) close(node.position + 1, node.below, to);
  }
  std::sort(to.begin(), to.end());
  return !to.empty();
}

bool Matcher::append_key(const State& state, size_t most, std::vector<uint32_t>& key) const {
  const size_t before = key.size();
  std::vector<std::vector<uint32_t>> stacks;
  size_t total = 0;
  for (const uint32_t id : state) {
    std::vector<uint32_t>& stack = stacks.emplace_back();
    for (uint32_t node = id; node != kEmpty; node = nodes_[node].below) {
      stack.push_back(nodes_[node].position);
      if (++total > most) return false;
    }
  }
  std::sort(stacks.begin(), stacks.end());  // the numbers follow the order of coming
  for (const std::vector<uint32_t>& stack : stacks) {
    key.push_back(uint32_t(stack.size()));
    key.insert(key.end(), stack.begin(), stack.end());
  }
  return key.size() - before <= 2 * most;
}

bool matches(const Grammar& grammar, std::string_view text) {
  Matcher matcher(grammar);
  Matcher::State state = matcher.start(), next;
  for (const char c : text) {
    if (!matcher.step(state, uint8_t(c), next)) return false;
    std::swap(state, next);
  }
  return Matcher::may_end(state);
}

}  // namespace weft::constrain
