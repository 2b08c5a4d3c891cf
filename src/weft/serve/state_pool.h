// StatePool: who holds which state of the layers that have such in place of keys and values, and which states are
// kept for prompts that begin alike.
#pragma once
#include <cstdint>
#include <vector>

namespace weft {

// A state is what its layers know of a text. One that is kept stands behind a block of the cache that is known to
// hold the end of the same text; it lasts as long as the block does, or until somebody needs its place: of those that
// nobody holds, the one that was used last goes last.
class StatePool {
 public:
  static constexpr int32_t kNone = -1;

  // num_blocks: of the cache; 0: none is kept. Without states, nothing can be taken.
  StatePool(int64_t num_states, int64_t num_blocks);

  // A state, of any contents, that the caller then holds; kNone when all are held.
  int32_t take();
  void hold(int32_t state);
  void release(int32_t state);
  // The state behind a block; kNone when none is kept. It is held by nobody for that.
  int32_t find(int32_t block) const;
  // Keeps a state that the caller holds, and goes on to hold, unless one is kept behind that block already.
  void keep(int32_t state, int32_t block);
  // The block has other contents from now on, or its state serves nobody any more.
  void forget(int32_t block);

  int64_t num_held() const { return num_held_; }
  int64_t num_kept() const { return num_kept_; }

 private:
  struct State {
    int32_t holders = 0, block = kNone;
    uint64_t used = 0;  // when it was held last
  };
  std::vector<State> states_;
  std::vector<int32_t> of_block_;
  uint64_t clock_ = 0;
  int64_t num_held_ = 0, num_kept_ = 0;
};

}  // namespace weft
