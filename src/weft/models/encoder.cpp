// Encoder: blocks, one after the other.
#include "weft/models/encoder.h"

#include <utility>

namespace weft {

Encoder::Encoder(const std::string& name, const ModelConfig& config, const Partition& partition, const Stages& stages,
                 int64_t head_parameters)
    : config_(config), stages_(stages), rope_(config_) {
  const int64_t ffn_matrices = config_.is_gated ? 3 : 2;
  const double layer = double(4 * config_.hidden * config_.hidden + ffn_matrices * config_.hidden * config_.ffn);
  mine_ = stages_.layers(config_.layers, {.layer = layer, .head = double(head_parameters)});
  for (int i = mine_.begin; i < mine_.end; ++i)
    blocks_.push_back(std::make_unique<Block>(fmt::format("{}layers.{}", name, i), i, config_, rope_, partition));
}

Var Encoder::operator()(Context& context, const Pass& pass, FunctionRef<Var()> begin) {
  Residual x{stages_.is_first() ? begin() : stages_.receive(context, {pass.num_tokens, config_.hidden})};
  if (!std::exchange(has_tables_, true)) rope_.prepare(context, Context::wide(x.x.value.dtype()));
  rope_.prepare(context, pass);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const bool is_local = config_.is_local(mine_.begin + int64_t(i));
    check(!is_local || pass.local, "local layers have a pass of their own");
    x = (*blocks_[i])(x, is_local ? *pass.local : pass, RecomputePolicy::What::nothing);
  }
  if (stages_.is_last()) return x.sum();
  stages_.send(x.sum());
  return {{}, &context};
}

ModelConfig encoder_config(const EncoderShape& s) {
  ModelConfig c;
  c.layers = s.layers, c.hidden = s.hidden, c.heads = s.heads, c.ffn = s.ffn;
  c.activation = s.activation, c.is_gated = s.is_gated;
  c.norm = NormKind::layer, c.norm_eps = s.norm_eps, c.bias = s.has_biases, c.norm_bias = s.has_norm_biases;
  c.block = s.block, c.first_norm = s.first_norm;
  c.position = s.rope_theta > 0 ? PositionKind::rope : PositionKind::learned;
  c.rope_theta = s.rope_theta, c.local_rope_theta = s.local_rope_theta;
  if (s.reach > 0) c.window = window_of(s.reach), c.global_layers = s.global_layers;
  c.context = s.positions;
  c.vocab = 1;  // not its own
  complete(c);
  return c;
}

}  // namespace weft
