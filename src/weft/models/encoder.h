// Encoder: a stack of layers over tokens that are there already: what the towers of texts and images are built of.
#pragma once
#include <memory>
#include <vector>

#include "weft/models/block.h"

namespace weft {

// Whether a token sees those behind it is the pass's: its spans say so.
class Encoder {
 public:
  // Of the configuration counts what a layer is; its positions are the caller's.
  Encoder(const std::string& name, const ModelConfig& config, const Partition& partition = {});
  Encoder(const Encoder&) = delete;

  Var operator()(const Var& x, const Pass& pass);

  void each_param(auto&& visit) {
    for (const auto& block : blocks_) block->each_param(visit);
  }

 private:
  ModelConfig config_;
  RopeTables no_rope_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

// The configuration of a layer with biases, LayerNorms and a feed-forward part without a gate; complete.
struct EncoderShape {
  int64_t layers = 0, hidden = 0, heads = 0, ffn = 0;
  Activation activation = Activation::gelu;
  float norm_eps = 1e-5f;
  BlockKind block = BlockKind::pre;
};
ModelConfig encoder_config(const EncoderShape& shape);

// All of `num_tokens` rows as one sequence. It outlives the passes made of it.
class WholeSequence {
 public:
  WholeSequence(int64_t num_tokens, bool causal)
      : num_tokens_(num_tokens),
        span_{.q_end = int32_t(num_tokens), .k_end = int32_t(num_tokens), .causal = causal} {}
  WholeSequence(const WholeSequence&) = delete;
  Pass pass() const { return {.num_tokens = num_tokens_, .attention = {.spans = &span_, .num_spans = 1}}; }

 private:
  int64_t num_tokens_;
  AttentionSpan span_;
};

}  // namespace weft
