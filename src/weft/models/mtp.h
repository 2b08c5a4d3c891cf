// Mtp: a part behind a decoder's last layer that predicts a token further on, from what the decoder said of a token
// and the token after that.
// Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 2.2 (multi-token prediction).
#pragma once
#include "weft/models/block.h"

namespace weft {

// h' = norm(block(projection [norm(e); norm(h)])), for h[T, H], what the decoder's head reads, and e[T, H], the
// embedding of the token that comes next. The decoder's head makes logits of h', of the token after that one.
class Mtp {
 public:
  // As a layer behind the decoder's (ModelConfig::mtp_block). rope outlives it.
  Mtp(const ModelConfig& config, const RopeTables& rope, const Partition& partition);

  // recomputed: of its layer.
  Var operator()(const Var& hidden, const Var& embedded, const Pass& pass, RecomputePolicy::What recomputed);

  void each_param(auto&& visit) {
    embedding_norm_.each_param(visit), hidden_norm_.each_param(visit);
    projection_.each_param(visit);
    block_.each_param(visit);
    norm_.each_param(visit);
  }
  void each_norm(auto&& visit) {
    visit(embedding_norm_), visit(hidden_norm_), visit(norm_);
    block_.each_norm(visit);
  }
  RouterBias* router_bias() { return block_.router_bias(); }
  ExpertUse* expert_use() { return block_.expert_use(); }

 private:
  Norm embedding_norm_, hidden_norm_;
  Linear projection_;  // [H, 2 H]
  Block block_;
  Norm norm_;
};

}  // namespace weft
