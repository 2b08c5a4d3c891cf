// Mlp: the forward pass of a feed-forward layer.
#include "weft/nn/mlp.h"

#include "weft/autograd/ops/dropout.h"

namespace weft {

Mlp::Mlp(const std::string& name, const MlpConfig& c)
    : config_(c),
      dropout_site_(name_hash(name)),
      up_(name + ".up", c.hidden, c.ffn, c.has_bias, c.init_std),
      down_(name + ".down", c.ffn, c.hidden, c.has_bias, c.output_init_std) {
  if (c.is_gated) gate_.emplace(name + ".gate", c.hidden, c.ffn, c.has_bias, c.init_std);
}

Var Mlp::operator()(const Var& x, const Pass& pass) {
  const LinearWeights up = up_.weights(), down = down_.weights();
  const Var y = gate_ ? apply(*x.context, GatedFeedForwardOp{gate_->weights(), up, down, config_.activation}, x)
                      : apply(*x.context, FeedForwardOp{up, down, config_.activation}, x);
  return dropout(y, pass.dropout(config_.dropout, dropout_site_, config_.hidden));
}

}  // namespace weft
