// PagedCache: keys and values of many sequences, layer by layer, in blocks of one pool, and the states of layers that
// have such in their place. Which block belongs to whom
// is the caller's business. Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
// PagedAttention", 2023.
#pragma once
#include <array>
#include <span>
#include <vector>

#include "weft/autograd/context.h"

namespace weft {

inline constexpr int kMostStates = 4;  // of a layer

class PagedCache {
 public:
  // Memory is taken layer by layer when a layer is first used: a rank has some layers of a model, and some heads of
  // each. num_states: sequences that have states at a time.
  PagedCache(Context& context, int num_layers, int64_t num_blocks, int64_t block_tokens, const RowFormat& format,
             int64_t num_states = 0)
      : context_(context),
        layers_(size_t(num_layers)),
        states_(size_t(num_layers)),
        num_blocks_(num_blocks),
        block_tokens_(block_tokens),
        num_states_(num_states),
        format_(format) {}

  int64_t num_blocks() const { return num_blocks_; }
  int64_t block_tokens() const { return block_tokens_; }
  const RowFormat& format() const { return format_; }
  int64_t bytes() const;  // of keys and values, held so far
  int64_t state_bytes() const;
  // Keys and values of a layer, [blocks, block_tokens, K, D] each, for rows like k[T, K, D] and v[T, K, value D]; of
  // codes wider by their scales. Without v, keys alone.
  const std::array<Tensor, 2>& layer(int layer, const Tensor& k, const Tensor& v);
  // A layer's states, whose first dim counts sequences; empty until the layer makes them.
  Tensor& state(int layer, int which) { return states_[size_t(layer)][size_t(which)]; }
  int64_t num_states() const { return num_states_; }

 private:
  Context& context_;
  std::vector<std::array<Tensor, 2>> layers_;
  std::vector<std::array<Tensor, kMostStates>> states_;
  int64_t num_blocks_, block_tokens_, num_states_;
  RowFormat format_;
};

struct SpreadPlan;

// The rows of a step: those of each sequence in turn, behind what the cache holds of it. All of it is host memory
// that outlives the step.
struct PagedPlan {
  PagedCache* cache = nullptr;
  const PagedSequence* sequences = nullptr;  // [num_sequences]
  int num_sequences = 0;
  std::span<const PagedSequence> span() const { return {sequences, size_t(num_sequences)}; }
  const int32_t* rows = nullptr;  // [T]: where the key of a row goes: block * block_tokens + its place in the block
  const SpreadPlan* spread = nullptr;  // where ranks share a cache (parallel/context/spread_attention.h); else null
};

}  // namespace weft
