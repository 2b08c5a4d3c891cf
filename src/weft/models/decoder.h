// Decoder: a decoder-only transformer, forward only; which one is a matter of its ModelConfig.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "weft/models/model_config.h"
#include "weft/nn/attention.h"
#include "weft/nn/mlp.h"
#include "weft/parallel/brackets.h"

namespace weft {

// Which blocks forget their activations and compute them again in the backward pass.
struct RecomputePolicy {
  int every = 0;  // 0: none, 1: every block, n: every n-th block
  bool applies_to(int block) const { return every > 0 && block % every == 0; }
};

class Decoder {
 public:
  // head_dim, kv_heads and so on must be complete (models/model_config.h).
  explicit Decoder(const ModelConfig& config);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const ModelConfig& config() const { return config_; }
  void set_recompute(RecomputePolicy policy) { recompute_ = policy; }

  // Gives every parameter memory for its value in `dtype` (not for its gradient), and the rotary table its numbers.
  void allocate(Context& context, DType dtype);
  // Sets the initial values, which are a function of the seed.
  void initialize(Context& context, uint64_t seed);

  // ids -> hidden states after the last norm, [T, H]
  Var hidden(Context& context, const Pass& pass, Brackets& brackets);
  // The sum of the cross-entropies of `targets` (-1 ignored); see HeadLossOp for grad_scale.
  Var loss(Context& context, const Pass& pass, const int32_t* targets, float grad_scale, Brackets& brackets);
  // Logits [rows, V] of chosen rows of hidden().
  Var logits(const Var& hidden);

  // Every parameter in the order of first use; a tied head is its embedding.
  std::vector<Param*> params();
  // The same, grouped as they are used: embedding, each block, then the final norm and the head.
  std::vector<std::vector<Param*>> param_groups();

 private:
  struct Block {
    Block(const std::string& name, int layer, const ModelConfig& config, const RopeTable* rope);
    Var operator()(const Var& x, const Pass& pass);
    void each_param(auto&& visit) {
      attention_norm.each_param(visit);
      attention.each_param(visit);
      mlp_norm.each_param(visit);
      mlp.each_param(visit);
    }
    Norm attention_norm;
    Attention attention;
    Norm mlp_norm;
    Mlp mlp;
  };

  Param& head_weight() { return head_ ? *head_ : embedding_; }

  ModelConfig config_;
  RecomputePolicy recompute_;
  uint64_t embedding_dropout_site_;
  RopeTable rope_;
  Param embedding_;                // [V, H]
  std::optional<Param> position_;  // [context, H]
  std::vector<std::unique_ptr<Block>> blocks_;
  Norm final_norm_;
  std::optional<Param> head_;  // [V, H]; absent when tied
};

}  // namespace weft
