// Spread attention: attention of a step of serving whose cache is spread over the ranks of a group, block by block.
// Source: Meta, "The Llama 3 Herd of Models", 2024 (keys and values are gathered, queries stay).
#pragma once
#include <vector>

#include "weft/autograd/ops/attention.h"
#include "weft/autograd/ops/paged_cache.h"
#include "weft/comm/communicator.h"

namespace weft {

// Every rank computes an even part of the step's rows, in order; the last ones may have rows behind the sequences'.
// Of each block of size() * cache.block_tokens() tokens, rank r holds the r-th run of cache.block_tokens().
// PagedPlan::sequences are then those of this rank's rows, and their blocks count what needed[rank()] names.
struct SpreadPlan {
  Communicator& group;
  std::vector<int32_t> places;  // of the keys of all ranks' rows, in this rank's cache; below 0: elsewhere
  std::vector<std::vector<int32_t>> needed;  // by the rows of each rank: blocks, each once
};

// q[T, N, D], k[T, K, D], v[T, K, value D], or none where they lie in keys -> [T, N, value D], where T are this
// rank's rows; those behind the sequences' are 0. Keys go to the ranks that hold their places, and come from there
// for each rank's rows, so that these have the very bits that one rank computes. A collective call, without
// gradients.
Tensor spread_attention(Context& context, const PagedPlan& plan, int layer, const AttentionRule& rule,
                        const AttentionSinks& sinks, const Tensor& q, const Tensor& k, const Tensor& v);

}  // namespace weft
