// Mlp: the forward pass of a feed-forward layer.
#include "weft/nn/mlp.h"

#include "weft/autograd/ops/activation.h"
#include "weft/autograd/ops/scale.h"
#include "weft/autograd/ops/xielu.h"

namespace weft {
namespace {

LinearConfig inwards(const MlpConfig& c, const TensorParallel& t, LoraTarget target) {
  return {.in = c.hidden,
          .out = c.ffn,
          .has_bias = c.has_bias,
          .init_std = c.init_std,
          .out_cut = t.cut(c.ffn),
          .adapter = adapter_of(c.lora, target),
          .base = c.lora.base};
}
LinearConfig outwards(const MlpConfig& c, const TensorParallel& t) {
  return {.in = c.ffn,
          .out = c.hidden,
          .has_bias = c.has_bias,
          .init_std = c.output_init_std,
          .in_cut = t.cut(c.ffn),
          .is_first = t.rank() == 0,
          .adapter = adapter_of(c.lora, LoraTarget::down, t.size() > 1 ? &t.group() : nullptr),
          .base = c.lora.base};
}

// By which both alphas are 0.8 in the beginning.
constexpr float kFirstAlphaP = 0.203383f, kFirstAlphaN = -1.050225f;

}  // namespace

Mlp::Mlp(const std::string& name, const MlpConfig& c, const Partition& partition)
    : config_(c),
      tensor_(partition.tensor),
      dropout_site_(name_hash(name)),
      up_(name + ".up", inwards(c, tensor_, LoraTarget::up)),
      down_(name + ".down", outwards(c, tensor_)) {
  if (c.is_gated) gate_.emplace(name + ".gate", inwards(c, tensor_, LoraTarget::gate));
  if (c.is_xielu) {
    alpha_p_.emplace(name + ".alpha_p", tensor_.replicated_inside({1}), Init::constant(kFirstAlphaP));
    alpha_n_.emplace(name + ".alpha_n", tensor_.replicated_inside({1}), Init::constant(kFirstAlphaN));
  }
  is_adapted_ = up_.has_adapter() || down_.has_adapter() || (gate_ && gate_->has_adapter());
}

Var Mlp::inside(const Var& x, const Pass& pass) {
  if (alpha_p_) return down_(apply(*x.context, XieluOp{*alpha_p_, *alpha_n_}, up_(x, pass)), pass);
  if (is_adapted_ || pass.lora || config_.gate_scale != 1) {
    const Var inner =
        gate_ ? gated_activation(scaled((*gate_)(x, pass), config_.gate_scale), up_(x, pass), config_.activation)
              : activation(up_(x, pass), config_.activation);
    return down_(inner, pass);
  }
  const LinearWeights up = up_.weights(), down = down_.weights();
  return gate_ ? apply(*x.context, GatedFeedForwardOp{gate_->weights(), up, down, config_.activation}, x)
               : apply(*x.context, FeedForwardOp{up, down, config_.activation}, x);
}

Var Mlp::operator()(const Var& residual, const Pass& pass) {
  const Var y = tensor_.leave(inside(tensor_.enter(residual), pass));
  return pass.dropout(y, config_.dropout, dropout_site_, tensor_.tokens(pass.num_tokens).begin);
}

}  // namespace weft
