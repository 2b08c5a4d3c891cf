// Attention: projections, rotary positions and grouped-query attention of one layer.
#pragma once
#include <optional>

#include "weft/autograd/ops/rope.h"
#include "weft/nn/attend.h"
#include "weft/nn/linear.h"
#include "weft/nn/norm.h"
#include "weft/nn/wanted_rows.h"
#include "weft/parallel/partition.h"

namespace weft {

struct AttentionConfig {
  int64_t hidden = 0, heads = 0, kv_heads = 0;
  int64_t head_dim = 0, value_dim = 0;  // of queries and keys; of values
  AttentionRule rule;                   // its scale is complete
  bool has_qkv_bias = false, has_output_bias = false;
  bool has_head_norm = false, has_norm_across = false;  // of queries and keys: of each head, or of all together
  bool is_norm_turned = false;                          // of each head, behind rotary positions
  bool has_norm_weight = true;                          // of each head
  bool has_norm_offset = false;
  bool has_sinks = false;        // of query heads
  bool has_gate = false;         // the result is multiplied by the sigmoid of a projection
  bool gates_heads = false;      // which has a number to each head, in place of one to each element
  bool has_value_norm = false;   // of each head, without weights
  bool values_are_keys = false;  // before their norm and rotary positions
  bool has_keys = true;          // false: it attends to keys and values of another layer
  float norm_eps = 1e-5f, dropout = 0;
  float init_std = 0.02f, output_init_std = 0.02f;
  LoraConfig lora = {};
};

// Of all rows of a pass, [T, K, D] each, or value_dim in place of values' D; normed and turned.
struct KeysAndValues {
  Var keys, values;
};

class Attention {
 public:
  // layer: of the cache; that of the keys. rope: null where nothing is done by position; outlives the layer.
  Attention(const std::string& name, int layer, const AttentionConfig& config, const RopeTable* rope,
            const Partition& partition);

  // x[rows, H] of the residual stream -> [rows, H], without the residual; where `wanted` is given, of these rows.
  // keys: of another layer, where this one has none; else, unless it is null, takes those of this one.
  Var operator()(const Var& x, const Pass& pass, const WantedRows* wanted = nullptr, KeysAndValues* keys = nullptr);

  void each_param(auto&& visit) {
    query_.each_param(visit);
    if (key_) key_->each_param(visit);
    if (value_) value_->each_param(visit);
    output_.each_param(visit);
    if (query_norm_) query_norm_->each_param(visit);
    if (key_norm_) key_norm_->each_param(visit);
    if (sinks_) visit(*sinks_);
    if (gate_) gate_->each_param(visit);
  }
  void each_norm(auto&& visit) {
    for (std::optional<Norm>* norm : {&query_norm_, &key_norm_, &value_norm_})
      if (*norm) visit(**norm);
  }

 private:
  // Queries, keys and values of x, queries of the wanted rows; no keys and values where those of another layer are.
  std::array<Var, 3> project(const Var& x, const Pass& pass, const WantedRows* wanted);
  // What heads give, [rows, heads * D], times their gates, which x[rows, H] says.
  Var gated(const Var& heads, const Var& x, const Pass& pass);
  // [rows, heads * D] -> [rows, heads, D], normalised where that comes before rotary positions
  Var to_heads(const Var& x, const Cut& heads, bool is_first_holder, std::optional<Norm>& norm);

  AttentionConfig config_;
  TensorParallel tensor_;
  HeadCut cut_;
  AttentionLayer layer_;
  const RopeTable* rope_;
  uint64_t output_dropout_site_;
  Linear query_;
  std::optional<Linear> key_, value_;
  Linear output_;
  std::optional<Norm> query_norm_, key_norm_, value_norm_;
  std::optional<Param> sinks_;  // [heads]
  std::optional<Linear> gate_;
};

}  // namespace weft
