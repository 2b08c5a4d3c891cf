// Moe: a feed-forward layer of experts, of which a router gives each token a few; beside them, experts that see all.
// Those that are chosen may read and write fewer numbers of a token than the residual stream has (LatentMoE).
#pragma once
#include "weft/nn/expert_linear.h"
#include "weft/nn/mlp.h"
#include "weft/nn/norm.h"
#include "weft/parallel/expert/gate.h"

namespace weft {

struct MoeConfig {
  GateConfig gate;
  bool has_router_bias = false;  // for the choice of experts: RouterBias
  bool has_biases = false;       // of the router's logits and of the experts' projections
  int64_t hidden = 0, ffn = 0;   // of one expert
  int64_t latent_dim = 0;        // what an expert that is chosen reads and writes of a token; 0: hidden
  bool has_latent_biases = false;
  MlpConfig shared = {};         // the experts that see all, as one; ffn 0: none
  bool has_shared_gate = false;  // which weighs what these give, token by token
  bool weighs_inputs = false;  // experts read tokens times their weights, which else what they give is multiplied by
  // Norms of its own, before the router and before the experts, with a learned factor to each expert; and behind
  // them.
  std::optional<NormConfig> pre_norms = {}, post_norm = {};
  Activation activation = Activation::silu;
  bool is_gated = true;
  float dropout = 0, init_std = 0.02f, output_init_std = 0.02f;
  LoraConfig lora = {};  // without dropout

  int64_t expert_dim() const { return latent_dim > 0 ? latent_dim : hidden; }
};

class Moe {
 public:
  Moe(const std::string& name, const MoeConfig& config, const Partition& partition);

  // x[rows, H] of the residual stream -> [rows, H], without the residual
  Var operator()(const Var& x, const Pass& pass);
  RouterBias* router_bias() { return bias_ ? &*bias_ : nullptr; }
  ExpertUse& expert_use() { return use_; }

  void each_param(auto&& visit) {
    if (router_norm_) router_norm_->each_param(visit);
    router_.each_param(visit);
    if (logit_bias_) visit(*logit_bias_);
    if (expert_factors_) visit(*expert_factors_);
    if (norm_) norm_->each_param(visit);
    if (latent_down_) latent_down_->each_param(visit);
    if (gate_) gate_->each_param(visit);
    up_.each_param(visit);
    down_.each_param(visit);
    if (latent_up_) latent_up_->each_param(visit);
    if (shared_) shared_->each_param(visit);
    if (shared_gate_) shared_gate_->each_param(visit);
    if (post_norm_) post_norm_->each_param(visit);
  }
  void each_norm(auto&& visit) {
    for (std::optional<Norm>* norm : {&router_norm_, &norm_, &post_norm_})
      if (*norm) visit(**norm);
  }

 private:
  // Scores of all experts [rows, E], before their rule.
  Var scores(const Var& x, const Pass& pass);
  Var feed_forward(const Var& rows, const RouteRef& route, const Pass& pass);
  // x: what a token is; where they are gated, a group of one expert, which takes all tokens.
  Var shared_experts(const Var& x, const Pass& pass, bool stays_on_device);
  bool stays_on_device(const Var& x, const Pass& pass);

  MoeConfig config_;
  TensorParallel tensor_;
  Communicator* experts_;  // null: this rank has all
  Communicator* rows_;
  uint64_t name_hash_;
  Linear router_;                        // [E, H]
  std::optional<Param> logit_bias_;      // [E]
  std::optional<Param> expert_factors_;  // [E]
  std::optional<Norm> router_norm_, norm_, post_norm_;
  std::optional<Linear> latent_down_, latent_up_;  // [L, H], [H, L]; experts then have L in place of H
  std::optional<ExpertLinear> gate_;               // [E, F, H]
  ExpertLinear up_, down_;                         // [E, F, H], [E, H, F]
  bool is_adapted_;                                // some projection of the experts has adapters
  std::optional<Mlp> shared_;
  std::optional<Linear> shared_gate_;  // [1, H]
  std::optional<RouterBias> bias_;
  ExpertUse use_;
  std::vector<std::unique_ptr<Route>> routes_;  // of the passes that are under way
};

}  // namespace weft
