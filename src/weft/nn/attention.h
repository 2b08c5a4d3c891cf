// Attention: projections, rotary positions and grouped-query attention of one layer.
#pragma once
#include <optional>

#include "weft/autograd/ops/rope.h"
#include "weft/nn/linear.h"
#include "weft/nn/norm.h"
#include "weft/nn/pass.h"
#include "weft/parallel/partition.h"

namespace weft {

struct AttentionConfig {
  int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool has_bias = false, has_qk_norm = false;
  float norm_eps = 1e-5f, dropout = 0;
  float init_std = 0.02f, output_init_std = 0.02f;
  LoraConfig lora = {};
};

class Attention {
 public:
  // rope: null where positions are learned; outlives the layer.
  Attention(const std::string& name, int layer, const AttentionConfig& config, const RopeTable* rope,
            const Partition& partition);

  // x[rows, H] of the residual stream -> [rows, H], without the residual
  Var operator()(const Var& x, const Pass& pass);

  void each_param(auto&& visit) {
    for (Linear* l : {&query_, &key_, &value_, &output_}) l->each_param(visit);
    if (query_norm_) query_norm_->each_param(visit), key_norm_->each_param(visit);
  }

 private:
  // [T, heads * D] -> [T, heads, D], normalised and rotated as the model wants
  Var place(const Var& x, int64_t heads, std::optional<Norm>& norm, const Pass& pass);
  Var attend(const Var& q, const Var& k, const Var& v, const Pass& pass) const;

  AttentionConfig config_;
  TensorParallel tensor_;
  HeadCut cut_;
  int layer_;
  const RopeTable* rope_;
  uint64_t attention_dropout_site_, output_dropout_site_;
  Linear query_, key_, value_, output_;
  std::optional<Norm> query_norm_, key_norm_;
};

}  // namespace weft
