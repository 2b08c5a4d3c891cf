// GatedConv: a layer's part in place of attention that remembers its last tokens alone: a convolution of single
// channels between two gates, y = W (q * conv(k * v)), with q, k and v three projections of the input.
// Source: Liquid AI, "LFM2 Technical Report", 2025, which calls k B and q C.
#pragma once
#include "weft/nn/convolution.h"
#include "weft/nn/linear.h"
#include "weft/nn/wanted_rows.h"
#include "weft/parallel/partition.h"

namespace weft {

struct GatedConvConfig {
  int64_t hidden = 0;
  int64_t conv = 0;  // tokens that it sees
  bool has_conv_bias = false;
  float dropout = 0, init_std = 0.02f, output_init_std = 0.02f;
  LoraConfig lora = {};
};

class GatedConv {
 public:
  GatedConv(const std::string& name, int layer, const GatedConvConfig& config, const Partition& partition);

  // x[rows, H] of the residual stream -> [rows, H], without the residual; where `wanted` is given, of these rows.
  Var operator()(const Var& x, const Pass& pass, const WantedRows* wanted = nullptr);

  void each_param(auto&& visit) {
    for (Linear* l : {&query_, &key_, &value_}) l->each_param(visit);
    conv_.each_param(visit);
    output_.each_param(visit);
  }

 private:
  GatedConvConfig config_;
  TensorParallel tensor_;
  int layer_;
  uint64_t output_dropout_site_;
  Linear query_, key_, value_;
  Convolution conv_;
  Linear output_;
};

}  // namespace weft
