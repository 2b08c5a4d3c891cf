// Mlp: the feed-forward half of a layer, gated (SwiGLU) or plain (GELU), perhaps with an activation that is learned.
#pragma once
#include <optional>

#include "weft/autograd/ops/feed_forward.h"
#include "weft/nn/linear.h"
#include "weft/nn/pass.h"
#include "weft/parallel/partition.h"

namespace weft {

struct MlpConfig {
  int64_t hidden = 0, ffn = 0;
  Activation activation = Activation::silu;
  bool is_gated = true;
  bool is_xielu = false;  // the activation is xIELU; not gated
  bool has_bias = false;
  float gate_scale = 1;  // of gates, before the activation
  float dropout = 0, init_std = 0.02f, output_init_std = 0.02f;
  LoraConfig lora = {};
};

class Mlp {
 public:
  Mlp(const std::string& name, const MlpConfig& config, const Partition& partition);

  // x[rows, H] of the residual stream -> [rows, H], without the residual
  Var operator()(const Var& x, const Pass& pass);
  // x[T, H] inside a tensor-parallel region -> this rank's part of the sum, before dropout
  Var inside(const Var& x, const Pass& pass);

  void each_param(auto&& visit) {
    if (gate_) gate_->each_param(visit);
    up_.each_param(visit);
    down_.each_param(visit);
    if (alpha_p_) visit(*alpha_p_), visit(*alpha_n_);
  }

 private:
  MlpConfig config_;
  TensorParallel tensor_;
  uint64_t dropout_site_;
  std::optional<Linear> gate_;
  Linear up_, down_;
  std::optional<Param> alpha_p_, alpha_n_;  // [1], of xIELU
  bool is_adapted_;  // some projection has an adapter, whose output comes before the activation
};

}  // namespace weft
