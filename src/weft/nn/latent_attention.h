// LatentAttention: attention whose keys and values are made from few numbers a token, its latent, which all heads
// share. Source: DeepSeek-AI, "DeepSeek-V2", 2024.
//
// Where nothing is learned and a past is kept (ADR 0065), neither is made: with k = [W_k c, r] and v = W_v c of a
// latent c and a part r that turns, q k = (W_kᵀ q) c + q_r r, and the sum of p v is W_v times that of p c. A token
// then leaves c and r behind, once for all heads.
#pragma once
#include <optional>

#include "weft/autograd/ops/rope.h"
#include "weft/nn/attend.h"
#include "weft/nn/indexer.h"
#include "weft/nn/linear.h"
#include "weft/nn/norm.h"
#include "weft/nn/wanted_rows.h"
#include "weft/parallel/partition.h"

namespace weft {

struct LatentAttentionConfig {
  int64_t hidden = 0, heads = 0;
  int64_t head_dim = 0;    // of queries and keys: first the elements that turn, then the others
  int64_t rotary_dim = 0;  // those that turn; of keys, the same for all heads
  int64_t value_dim = 0;
  int64_t kv_rank = 0;
  int64_t query_rank = 0;  // 0: queries are made from the residual stream at once
  AttentionRule rule;      // its scale is complete
  bool has_down_bias = false, has_output_bias = false;
  bool has_sinks = false;  // of heads
  bool has_gate = false;   // the result is multiplied by the sigmoid of a projection
  float norm_eps = 1e-6f, dropout = 0;
  float init_std = 0.02f, output_init_std = 0.02f;
  LoraConfig lora = {};  // of the output
  // Sparse attention: rows see the keys that an index selects, `index_topk` of them; 0: all. Without heads the index
  // is another layer's.
  int64_t index_heads = 0, index_head_dim = 0, index_topk = 0;
  float index_norm_eps = 1e-6f;
};

class LatentAttention {
 public:
  // rope: null where nothing is done by position; outlives the layer.
  LatentAttention(const std::string& name, int layer, const LatentAttentionConfig& config, const RopeTable* rope,
                  const Partition& partition);

  // What rows of a pass selected, for layers that have no index: a list where a past is kept, bits elsewhere, neither
  // where all rows see all keys.
  struct Selected {
    Tensor list, bits;
  };

  // x[rows, H] of the residual stream -> [rows, H], without the residual; where `wanted` is given, of these rows.
  // selected: what another layer selected, where this one has no index; else, unless it is null, takes what this one
  // selects.
  Var operator()(const Var& x, const Pass& pass, const WantedRows* wanted = nullptr, Selected* selected = nullptr);

  void each_param(auto&& visit) {
    if (query_down_) query_down_->each_param(visit), query_norm_->each_param(visit);
    query_.each_param(visit);
    latent_.each_param(visit);
    key_rotary_.each_param(visit);
    latent_norm_.each_param(visit);
    key_.each_param(visit);
    value_.each_param(visit);
    output_.each_param(visit);
    if (sinks_) visit(*sinks_);
    if (gate_) gate_->each_param(visit);
    if (indexer_) indexer_->each_param(visit);
  }

 private:
  struct Inputs {
    Var q, latent, rotary;  // [T, heads * D], of the wanted rows; [T, kv_rank], [T, rotary_dim]
    Var query_latent;       // [T, query_rank], of the wanted rows
  };
  Inputs project(const Var& x, const WantedRows* wanted);
  AttentionSinks sinks() { return {sinks_ ? &*sinks_ : nullptr}; }
  // The same, of q and r after they have turned: q[rows, heads, D], latent[T, kv_rank], rotary[T, 1, rotary_dim] ->
  // [rows, heads, value_dim].
  Var attend_with_heads(const Var& q, const Var& latent, const Var& rotary, const Pass& pass,
                        const KeySelection& selection);
  Var attend_to_latents(const Var& q, const Var& latent, const Var& rotary, const Pass& pass,
                        const Indexer::Index& index);
  // Whether some text of a pass that keeps no past is so long that its rows do not see all keys.
  bool selects(const Pass& pass) const;
  // y[heads, rows, out] of a[heads, rows, in]: each head's with its rows of the weights, or their transpose.
  void multiply_heads(Context& context, Linear& weights, const Tensor& y, const Tensor& a, bool transpose);

  LatentAttentionConfig config_;
  TensorParallel tensor_;
  Cut heads_;
  AttentionLayer layer_;
  const RopeTable* rope_;
  uint64_t output_dropout_site_;
  std::optional<Linear> query_down_;
  std::optional<Norm> query_norm_;
  Linear query_, latent_, key_rotary_;
  Norm latent_norm_;
  Linear key_, value_, output_;
  std::optional<Param> sinks_;  // [heads]
  std::optional<Linear> gate_;
  std::optional<Indexer> indexer_;
  std::vector<int64_t> starts_;  // of the heads' rows
};

}  // namespace weft
