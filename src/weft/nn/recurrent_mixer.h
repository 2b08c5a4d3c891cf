// RecurrentMixer: a layer's part in place of attention that remembers in a state of fixed size: projections,
// convolutions over the last tokens, a rule by which states change, a norm and a gate. By the delta rule the norm is
// of each head, and the gate behind it; of selective states the norm is of the heads of a key, behind the gate or
// before it, or there is none. Sources: Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with
// Delta Rule", 2024; Dao and Gu, "Transformers are SSMs", 2024; Kimi Team, "Kimi Linear: An Expressive, Efficient
// Attention Architecture", 2025.
#pragma once
#include "weft/autograd/ops/recurrence.h"
#include "weft/nn/convolution.h"
#include "weft/nn/linear.h"
#include "weft/nn/norm.h"
#include "weft/nn/wanted_rows.h"
#include "weft/parallel/partition.h"

namespace weft {

// Factors of what projections give.
struct RecurrentScales {
  float gate = 1, value = 1, key = 1, query = 1, decay = 1;
};

struct RecurrentConfig {
  StateRule rule = StateRule::delta;
  int64_t hidden = 0;
  int64_t heads = 0, key_heads = 0;  // of values; of queries and keys
  int64_t key_dim = 0, value_dim = 0;
  int64_t conv = 0;  // tokens that a convolution sees
  bool has_conv_bias = false;
  bool decays_by_row = false;  // of the delta rule: a rate to each row of a state, not to a head
  int64_t gate_rank = 0;       // of a token, from which gates and decays of all heads are made; 0: from all of it
  Activation gate = Activation::silu;
  float beta_scale = 1;  // of the delta rule
  bool has_norm = true, norms_before_gate = true;
  float norm_eps = 1e-6f;
  RecurrentScales scales = {};
  float dropout = 0;
  float init_std = 0.02f, output_init_std = 0.02f;
  LoraConfig lora = {};
};

class RecurrentMixer {
 public:
  RecurrentMixer(const std::string& name, int layer, const RecurrentConfig& config, const Partition& partition);

  // x[rows, H] of the residual stream -> [rows, H], without the residual; where `wanted` is given, of these rows.
  Var operator()(const Var& x, const Pass& pass, const WantedRows* wanted = nullptr);

  void each_param(auto&& visit) {
    for (Linear* l : {&query_, &key_, &value_}) l->each_param(visit);
    if (gate_down_) gate_down_->each_param(visit);
    gate_.each_param(visit);
    if (decay_down_) decay_down_->each_param(visit);
    decay_.each_param(visit);
    if (beta_) beta_->each_param(visit);
    for (Convolution* c : {&query_conv_, &key_conv_, &value_conv_}) c->each_param(visit);
    for (Param* p : {&rate_, &shift_}) visit(*p);
    if (skip_) visit(*skip_);
    if (norm_) norm_->each_param(visit);
    if (norm_weight_) visit(*norm_weight_);
    output_.each_param(visit);
  }
  void each_norm(auto&& visit) {
    if (norm_) visit(*norm_);
  }

 private:
  bool is_delta() const { return config_.rule == StateRule::delta; }
  int64_t rates_of_head() const { return config_.decays_by_row ? config_.key_dim : 1; }
  static Var through(std::optional<Linear>& down, Linear& up, const Var& x, const Pass& pass) {
    return up(down ? (*down)(x, pass) : x, pass);
  }
  // Of whole keys, behind a norm without weights.
  Var normed_by_key(const Var& y);
  // What states give [T, heads Dv], normalised and gated: of x, the wanted rows.
  Var gated(const Var& y, const Var& x, const Pass& pass, const WantedRows* wanted);

  RecurrentConfig config_;
  TensorParallel tensor_;
  HeadCut cut_;  // key/value heads are those of queries and keys
  int layer_;
  uint64_t output_dropout_site_;
  Linear query_, key_, value_;
  std::optional<Linear> gate_down_, decay_down_;  // to gate_rank
  Linear gate_;
  Linear decay_;                // a number to each head, or to each row of its state
  std::optional<Linear> beta_;  // a number to each head, of the delta rule
  Convolution query_conv_, key_conv_, value_conv_;
  Param rate_, shift_;                // [heads]; a shift to each number of decay_
  std::optional<Param> skip_;         // [heads], of selective states
  std::optional<Norm> norm_;          // of each head; of selective states without weights, of those of each key
  std::optional<Param> norm_weight_;  // [heads Dv], of selective states
  Linear output_;
};

}  // namespace weft
