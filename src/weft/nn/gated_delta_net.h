// GatedDeltaNet: a layer's part in place of attention that remembers in a state of fixed size: projections,
// convolutions over the last tokens, the gated delta rule, and a gated norm.
// Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024.
#pragma once
#include "weft/autograd/ops/gated_delta.h"
#include "weft/nn/linear.h"
#include "weft/nn/norm.h"
#include "weft/nn/wanted_rows.h"
#include "weft/parallel/partition.h"

namespace weft {

struct GatedDeltaConfig {
  int64_t hidden = 0;
  int64_t heads = 0, key_heads = 0;  // of values; of queries and keys
  int64_t key_dim = 0, value_dim = 0;
  int64_t conv = 0;  // tokens that a convolution sees
  float norm_eps = 1e-6f, dropout = 0;
  float init_std = 0.02f, output_init_std = 0.02f;
  LoraConfig lora = {};
};

class GatedDeltaNet {
 public:
  GatedDeltaNet(const std::string& name, int layer, const GatedDeltaConfig& config, const Partition& partition);

  // x[rows, H] of the residual stream -> [rows, H], without the residual; where `wanted` is given, of these rows.
  Var operator()(const Var& x, const Pass& pass, const WantedRows* wanted = nullptr);

  void each_param(auto&& visit) {
    for (Linear* l : {&query_, &key_, &value_, &gate_, &decay_, &beta_}) l->each_param(visit);
    for (Param* p : {&query_conv_, &key_conv_, &value_conv_, &rate_, &shift_}) visit(*p);
    norm_.each_param(visit);
    output_.each_param(visit);
  }

 private:
  // The runs of a pass, and of a cache this layer's states number `which`, made when there are none. state: of one
  // sequence, behind a first dim.
  Recurrence past(Context& context, const Pass& pass, int which, DType dtype, Shape state);
  // The key heads whose recurrence runs on this rank, with `per_key` value heads each, over so many tokens: where
  // those of a sequence are spread over ranks, all tokens of some heads.
  struct KeyShare {
    int64_t first, count, per_key, tokens;
  };
  KeyShare share(const Pass& pass) const;
  Var gathered(const Var& x, const Pass& pass, const KeyShare& here);   // [T, C] -> [here.tokens, C here]
  Var scattered(const Var& y, const Pass& pass, const KeyShare& here);  // and back
  Var convolved(const Var& x, const ParamRows& taps, const Pass& pass, int which);

  GatedDeltaConfig config_;
  TensorParallel tensor_;
  HeadCut cut_;  // key/value heads are those of queries and keys
  int layer_;
  uint64_t output_dropout_site_;
  Linear query_, key_, value_, gate_;
  Linear decay_, beta_;                       // a number to each head
  Param query_conv_, key_conv_, value_conv_;  // [channels, conv]
  Param rate_, shift_;                        // [heads]
  Norm norm_;                                 // of each head
  Linear output_;
};

}  // namespace weft
