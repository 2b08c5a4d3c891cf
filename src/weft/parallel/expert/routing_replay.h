// RoutingReplay: the experts that tokens went to in one run of training, to which another run sends them again. Where
// two experts score nearly alike, sums that round otherwise choose the other one, and what follows is another
// function.
#pragma once
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "weft/autograd/ops/dropout.h"

namespace weft {

// Shared by the threads that are ranks. First one rank records, then any mesh replays.
class RoutingReplay {
 public:
  // A layer's pass over some tokens of a step, each of which goes to k experts.
  struct Pass {
    uint64_t layer;  // name_hash, and its complement of a pass without gradients, as a teacher's is
    int64_t step;
    std::span<const TokenSpan> tokens;
    int64_t k;
  };

  bool is_replaying() const { return is_replaying_; }
  void start_replaying() { is_replaying_ = true; }

  void record(const Pass& pass, const int32_t* experts);  // [T, k]
  // In place: from what this rank chooses to what was recorded. Throws where nothing was.
  void replay(const Pass& pass, int32_t* experts);

  // Of the choices replayed since the last call, the part that is what the rank itself chose, in the layer where that
  // is least; 1 where there were none. In this process.
  double take_least_share_of_same();

 private:
  struct Count {
    int64_t all = 0, same = 0;
  };

  bool is_replaying_ = false;
  std::mutex mutex_;
  std::map<std::pair<uint64_t, int64_t>, std::vector<int32_t>> experts_;  // of a layer and a step: [tokens, k]
  std::map<uint64_t, Count> counts_;                                      // by layer
};

}  // namespace weft
