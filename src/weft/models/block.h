// Block: one layer of a decoder: attention, or what stands in its place, then a feed-forward part, and the norms
// around them; or one of the two parts alone.
#pragma once
#include <optional>
#include <string>

#include "weft/autograd/ops/scale.h"
#include "weft/models/model_config.h"
#include "weft/models/rope_tables.h"
#include "weft/nn/attention.h"
#include "weft/nn/gated_conv.h"
#include "weft/nn/latent_attention.h"
#include "weft/nn/moe.h"
#include "weft/nn/recurrent_mixer.h"

namespace weft {

class Block {
 public:
  // rope outlives the block.
  Block(const std::string& name, int layer, const ModelConfig& config, const RopeTables& rope,
        const Partition& partition);

  // recomputed: the block or one of its two parts, where there is a tape. wanted: of the last layer, the rows that it
  // gives; null: all.
  Residual operator()(const Residual& x, const Pass& pass, RecomputePolicy::What recomputed,
                      const WantedRows* wanted = nullptr);

  void each_param(auto&& visit) {
    each_norm_of(attention_norm_, attention_post_norm_, [&](Norm& n) { n.each_param(visit); });
    if (attention_) attention_->each_param(visit);
    if (latent_attention_) latent_attention_->each_param(visit);
    if (recurrent_) recurrent_->each_param(visit);
    if (conv_) conv_->each_param(visit);
    each_norm_of(mlp_norm_, mlp_post_norm_, [&](Norm& n) { n.each_param(visit); });
    if (moe_) moe_->each_param(visit);
    if (mlp_) mlp_->each_param(visit);
  }
  void each_norm(auto&& visit) {
    each_norm_of(attention_norm_, attention_post_norm_, visit);
    if (recurrent_) recurrent_->each_norm(visit);
    each_norm_of(mlp_norm_, mlp_post_norm_, visit);
  }
  RouterBias* router_bias() { return moe_ ? moe_->router_bias() : nullptr; }

 private:
  static void each_norm_of(std::optional<Norm>& before, std::optional<Norm>& after, auto&& visit) {
    if (before) visit(*before);
    if (after) visit(*after);
  }
  Var attend(const Var& x, const Pass& pass, const WantedRows* wanted) {
    return scaled(mix(x, pass, wanted), residual_scale_);
  }
  Var mix(const Var& x, const Pass& pass, const WantedRows* wanted) {
    if (recurrent_) return (*recurrent_)(x, pass, wanted);
    if (conv_) return (*conv_)(x, pass, wanted);
    return latent_attention_ ? (*latent_attention_)(x, pass, wanted) : (*attention_)(x, pass, wanted);
  }
  Var feed_forward(const Var& x, const Pass& pass) {
    return scaled(moe_ ? (*moe_)(x, pass) : (*mlp_)(x, pass), residual_scale_);
  }

  BlockKind kind_;
  float residual_scale_;
  std::optional<Norm> attention_norm_, attention_post_norm_;
  std::optional<Attention> attention_;               // or
  std::optional<LatentAttention> latent_attention_;  // or
  std::optional<RecurrentMixer> recurrent_;          // or
  std::optional<GatedConv> conv_;
  std::optional<Norm> mlp_norm_, mlp_post_norm_;
  std::optional<Mlp> mlp_;  // or
  std::optional<Moe> moe_;
};

NormConfig norm_config(const ModelConfig& config);

}  // namespace weft
