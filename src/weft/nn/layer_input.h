// LayerInput: what a layer makes of its input (nn/layer_inputs.h), behind its parts: y + norm(W (f(V y) * input)).
#pragma once
#include "weft/nn/linear.h"
#include "weft/nn/norm.h"
#include "weft/parallel/partition.h"

namespace weft {

struct LayerInputConfig {
  int64_t hidden = 0, width = 0;
  Activation activation = Activation::gelu_tanh;
  NormConfig norm;
  float init_std = 0.02f, output_init_std = 0.02f;
  BaseFormat base = BaseFormat::plain;
};

class LayerInput {
 public:
  LayerInput(const std::string& name, const LayerInputConfig& config, const Partition& partition);

  // y[rows, H], the residual stream behind the layer's parts, and input[rows, width] -> [rows, H]
  Var operator()(const Var& y, const Var& input);

  void each_param(auto&& visit) {
    gate_.each_param(visit);
    projection_.each_param(visit);
    norm_.each_param(visit);
  }
  void each_norm(auto&& visit) { visit(norm_); }

 private:
  Activation activation_;
  Linear gate_, projection_;  // [width, H], [H, width]
  Norm norm_;
};

}  // namespace weft
