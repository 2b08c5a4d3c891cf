// Block: one layer of a decoder: attention, or what stands in its place or beside it, then a feed-forward part, and
// the norms around them; or one of the two parts alone.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "weft/autograd/ops/reshape.h"
#include "weft/autograd/ops/scale.h"
#include "weft/models/model_config.h"
#include "weft/models/rope_tables.h"
#include "weft/nn/attention.h"
#include "weft/nn/gated_conv.h"
#include "weft/nn/hyper_connection.h"
#include "weft/nn/latent_attention.h"
#include "weft/nn/layer_input.h"
#include "weft/nn/moe.h"
#include "weft/nn/recurrent_mixer.h"

namespace weft {

// What a layer has of others.
struct FromOtherLayers {
  Var input = {};                 // LayerInputs', of the rows that the layer gives
  KeysAndValues* keys = nullptr;  // see Attention
  // See LatentAttention; outlives the tape, for layers that are recomputed.
  std::shared_ptr<LatentAttention::Selected> selected = {};
};

class Block {
 public:
  // rope outlives the block.
  Block(const std::string& name, int layer, const ModelConfig& config, const RopeTables& rope,
        const Partition& partition);

  // recomputed: the block or one of its two parts, where there is a tape; of one whose keys others attend to the
  // feed-forward part alone. wanted: of the last layer, the rows that it gives; null: all.
  Residual operator()(const Residual& x, const Pass& pass, RecomputePolicy::What recomputed,
                      const WantedRows* wanted = nullptr, const FromOtherLayers& others = {});

  void each_param(auto&& visit) {
    each_norm_of(attention_norm_, attention_post_norm_, [&](Norm& n) { n.each_param(visit); });
    if (attention_) attention_->each_param(visit);
    if (latent_attention_) latent_attention_->each_param(visit);
    if (recurrent_) recurrent_->each_param(visit);
    if (conv_) conv_->each_param(visit);
    for (std::optional<HyperConnection>* streams : {&attention_streams_, &mlp_streams_})
      if (*streams) (*streams)->each_param(visit);
    each_norm_of(mlp_norm_, mlp_post_norm_, [&](Norm& n) { n.each_param(visit); });
    if (mlp_) mlp_->each_param(visit);
    if (dense_post_norm_) dense_post_norm_->each_param(visit);
    if (moe_) moe_->each_param(visit);
    if (input_) input_->each_param(visit);
    if (scale_) visit(*scale_);
  }
  void each_norm(auto&& visit) {
    each_norm_of(attention_norm_, attention_post_norm_, visit);
    if (attention_) attention_->each_norm(visit);
    if (recurrent_) recurrent_->each_norm(visit);
    each_norm_of(mlp_norm_, mlp_post_norm_, visit);
    if (dense_post_norm_) visit(*dense_post_norm_);
    if (moe_) moe_->each_norm(visit);
    if (input_) input_->each_norm(visit);
  }
  RouterBias* router_bias() { return moe_ ? moe_->router_bias() : nullptr; }
  ExpertUse* expert_use() { return moe_ ? &moe_->expert_use() : nullptr; }

 private:
  // Norms would undo a scale before them.
  float scale_of_sum(float of_part) const { return has_norms_behind_ ? of_part : residual_scale_ * of_part; }
  static void each_norm_of(std::optional<Norm>& before, std::optional<Norm>& after, auto&& visit) {
    if (before) visit(*before);
    if (after) visit(*after);
  }
  Var attend(const Var& x, const Pass& pass, const WantedRows* wanted, const FromOtherLayers& others) {
    if (!recurrent_ && !conv_) return attend_only(x, pass, wanted, others);
    if (!attention_) return remember(x, pass, wanted);
    // As of feed_forward, gradients of both meet here.
    const Var both = reshape(x, x.value.shape());
    return remember(both, pass, wanted) + attend_only(both, pass, wanted, others);
  }
  Var remember(const Var& x, const Pass& pass, const WantedRows* wanted) {
    return scaled(recurrent_ ? (*recurrent_)(x, pass, wanted) : (*conv_)(x, pass, wanted), state_scale_);
  }
  Var attend_only(const Var& x, const Pass& pass, const WantedRows* wanted, const FromOtherLayers& others) {
    const Var y = latent_attention_ ? (*latent_attention_)(x, pass, wanted, others.selected.get())
                                    : (*attention_)(x, pass, wanted, others.keys);
    return scaled(y, attention_scale_);
  }
  // x: normalised; where both stand side by side, the residual stream.
  Var feed_forward(const Var& x, const Pass& pass) {
    if (!moe_) return scaled((*mlp_)(x, pass), mlp_scale_);
    if (!mlp_) return scaled((*moe_)(x, pass), mlp_scale_);
    // The gradients of both meet here, so that recomputation adds them up in the same order.
    const Var both = reshape(x, x.value.shape());
    return scaled((*dense_post_norm_)((*mlp_)((*mlp_norm_)(both), pass)) + (*moe_)(both, pass), mlp_scale_);
  }
  Residual both_parts(const Residual& x, const Pass& pass, RecomputePolicy::What recomputed, const WantedRows* wanted,
                      const FromOtherLayers& others);

  BlockKind kind_;
  bool gives_keys_, has_norms_behind_;
  float residual_scale_, attention_scale_, state_scale_, mlp_scale_;
  std::optional<Norm> attention_norm_, attention_post_norm_;
  std::optional<Attention> attention_;               // or, or beside what follows,
  std::optional<LatentAttention> latent_attention_;  // or
  std::optional<RecurrentMixer> recurrent_;          // or
  std::optional<GatedConv> conv_;
  std::optional<Norm> mlp_norm_, mlp_post_norm_;
  std::optional<Mlp> mlp_;  // or, or beside it
  std::optional<Moe> moe_;
  std::optional<Norm> dense_post_norm_;  // where both are there
  std::optional<LayerInput> input_;
  std::optional<Param> scale_;                                      // [1]
  std::optional<HyperConnection> attention_streams_, mlp_streams_;  // of several residual streams
};

NormConfig norm_config(const ModelConfig& config);
// Of the parts of layers, and of the head.
HyperConnectionConfig streams_config(const ModelConfig& config);

}  // namespace weft
