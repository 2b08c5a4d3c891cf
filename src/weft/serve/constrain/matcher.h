// Matcher: which ways through a grammar the bytes so far leave open, all at once.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/serve/constrain/grammar.h"

namespace weft::constrain {

// The open ways, each a stack of positions in the grammar: the next byte's on top, below it where to go on when a
// rule ends. Stacks are numbered, equal ones equally, and a state is the sorted list of their numbers, so that an
// older one stays what it was. Belongs to one thread; the grammar outlives it.
class Matcher {
 public:
  using State = std::vector<uint32_t>;  // empty: nothing can follow, nor may it end here

  explicit Matcher(const Grammar& grammar);

  const State& start() const { return start_; }
  // The ways that `byte` leaves open; false when there are none. Throws UsageError when the grammar is so ambiguous
  // that they pass the limits.
  bool step(const State& from, uint8_t byte, State& to);
  static bool may_end(const State& state) { return !state.empty() && state.front() == kEmpty; }

  // Appends numbers that tell this state from every other of the grammar, in any Matcher of it. False, and nothing
  // useful, when they are more than `most`.
  bool append_key(const State& state, size_t most, std::vector<uint32_t>& key) const;

  // Stacks made after mark() are forgotten by release(): no state that came later may be used any more.
  size_t mark() const { return nodes_.size(); }
  void release(size_t mark);
  uint64_t work() const { return work_; }  // grows with the time that was spent

 private:
  struct Node {
    uint32_t position, below;
  };
  static constexpr uint32_t kEmpty = 0;  // the stack with nothing on it

  uint32_t intern(uint32_t position, uint32_t below);
  size_t slot_of(Node node) const;
  void grow();
  void begin_closure();
  void close(uint32_t position, uint32_t below, State& state);
  void visit(uint32_t position, uint32_t below);

  const Grammar& grammar_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> seen_;   // the closure that last came by each node
  std::vector<uint32_t> slots_;  // a hash table of nodes; 0: free
  std::vector<uint32_t> open_;
  uint64_t epoch_ = 0, work_ = 0;
  State start_;
};

// Whether the grammar matches the whole text.
bool matches(const Grammar& grammar, std::string_view text);

}  // namespace weft::constrain
