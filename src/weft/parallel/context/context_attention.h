// Context attention: attention whose tokens are spread over the ranks of a group, in three ways.
#pragma once
#include "weft/comm/communicator.h"
#include "weft/parallel/context/context_plan.h"

namespace weft {

//   ring       keys and values go around the ranks, one block computing while the next is on its way; any number of
//              heads, and no rank ever holds more keys than its own and one block
//   ulysses    all_to_all makes every rank hold all tokens of some heads; heads may divide unevenly
//   allgather  every rank holds all keys and values of the layer for a while
enum class ContextMode : uint8_t { ring, ulysses, allgather };

// One rank's part in a context-parallel group; outlives the tape.
struct ContextParallel {
  Communicator& group;
  ContextMode mode = ContextMode::ring;
  std::vector<int64_t> sent = {}, received = {};  // rows for each rank in the all_to_all at hand; storage is kept
};

// What every way shares.
struct ContextCall {
  ContextParallel& parallel;
  const ContextPlan& plan;  // outlives the tape
  AttentionRule rule;
  DropoutKey dropout = {};
  AttentionSinks sinks = {};  // of q's heads
};

// q[T, N, D], k and v[T, K, D] -> y[T, N, D], where T are the tokens of this rank as its layout says. The result and
// all gradients are those of attention on one rank, dropout included. A collective call.
Var context_attention(const Var& q, const Var& k, const Var& v, const ContextCall& call);

}  // namespace weft
