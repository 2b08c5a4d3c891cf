// TensorParallel: regions whose weights are cut over the ranks of a group, and the way in and out of them.
#pragma once
#include "weft/autograd/placement.h"
#include "weft/autograd/tape.h"
#include "weft/comm/communicator.h"

namespace weft {

// Which heads a rank computes. A rank has all query heads of its key/value heads; with fewer key/value heads than
// ranks, several ranks share one and cut its query heads.
struct HeadCut {
  Cut heads, kv_heads;
  bool is_kv_shared = false;    // some key/value heads are held by more than one rank
  bool is_first_holder = true;  // of its key/value heads
};
HeadCut cut_heads(int64_t heads, int64_t kv_heads, int rank, int size);

// Every rank of the group reads the same tokens and holds a part of each weight inside a region. Outside of regions
// the residual stream is the same on all ranks or, with sequence parallelism, cut by tokens: rank r holds the r-th
// even part. Default-made it is one rank, and nothing is sent. Sources: Shoeybi et al., "Megatron-LM", 2019;
// Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022.
class TensorParallel {
 public:
  TensorParallel() = default;
  // The group outlives this.
  TensorParallel(Communicator& group, bool cuts_sequence)
      : group_(group.size() > 1 ? &group : nullptr), cuts_sequence_(group_ && cuts_sequence) {}

  int rank() const { return group_ ? group_->rank() : 0; }
  int size() const { return group_ ? group_->size() : 1; }
  Communicator& group() const { return *group_; }  // only when size() > 1
  bool cuts_sequence() const { return cuts_sequence_; }

  Cut cut(int64_t total) const { return even_cut(total, rank(), size()); }
  // The tokens of the residual stream that this rank holds, of `num_tokens`. Throws Error unless they divide evenly.
  Cut tokens(int64_t num_tokens) const;

  // From the residual stream into a region: all tokens. Backward: the sum of what the ranks' parts say.
  Var enter(const Var& x) const;
  // From a region, where each rank has a partial sum, to the residual stream. x is written where nobody else has it.
  Var leave(const Var& x) const;

  // A weight outside of regions, held by every rank: with cut tokens each rank sees a part of its gradient.
  Placement replicated(Shape shape) const {
    Placement p(shape);
    p.is_first_copy = rank() == 0;
    p.is_partial = cuts_sequence_;
    return p;
  }
  // A weight inside a region, held by every rank, whose gradient each sees a part of.
  Placement replicated_inside(Shape shape) const {
    Placement p = replicated(shape);
    p.is_partial = size() > 1;
    return p;
  }

 private:
  Communicator* group_ = nullptr;
  bool cuts_sequence_ = false;
};

}  // namespace weft
