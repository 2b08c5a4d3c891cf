// StatePool: few states, that are looked through one by one.
#include "weft/serve/state_pool.h"

#include "weft/base/error.h"

namespace weft {

StatePool::StatePool(int64_t num_states, int64_t num_blocks)
    : states_(size_t(num_states)), of_block_(size_t(num_states > 0 ? num_blocks : 0), kNone) {}

int32_t StatePool::take() {
  int32_t best = kNone;
  for (int32_t i = 0; i < int32_t(states_.size()); ++i) {
    const State& s = states_[size_t(i)];
    if (s.holders > 0) continue;
    if (s.block == kNone) {
      best = i;
      break;
    }
    if (best == kNone || s.used < states_[size_t(best)].used) best = i;
  }
  if (best == kNone) return kNone;
  if (const int32_t block = states_[size_t(best)].block; block != kNone) forget(block);
  hold(best);
  return best;
}

void StatePool::hold(int32_t state) {
  State& s = states_[size_t(state)];
  if (s.holders++ == 0) ++num_held_;
  s.used = ++clock_;
}

void StatePool::release(int32_t state) {
  State& s = states_[size_t(state)];
  check(s.holders > 0, "state {} is released, but nobody holds it", state);
  if (--s.holders == 0) --num_held_;
}

int32_t StatePool::find(int32_t block) const { return of_block_.empty() ? kNone : of_block_[size_t(block)]; }

void StatePool::keep(int32_t state, int32_t block) {
  if (find(block) != kNone) return;
  check(states_[size_t(state)].block == kNone, "state {} is kept already", state);
  states_[size_t(state)].block = block;
  of_block_[size_t(block)] = state;
  ++num_kept_;
}

void StatePool::forget(int32_t block) {
  const int32_t state = find(block);
  if (state == kNone) return;
  of_block_[size_t(block)] = kNone;
  states_[size_t(state)].block = kNone;
  --num_kept_;
}

}  // namespace weft
