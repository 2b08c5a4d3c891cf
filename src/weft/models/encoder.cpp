// Encoder: blocks, one after the other.
#include "weft/models/encoder.h"

namespace weft {

Encoder::Encoder(const std::string& name, const ModelConfig& config, const Partition& partition, const Stages& stages,
                 int64_t head_parameters)
    : config_(config), stages_(stages), no_rope_(config_) {
  const double layer = double(4 * config_.hidden * config_.hidden + 2 * config_.hidden * config_.ffn);
  const LayerRange mine = stages_.layers(config_.layers, {.layer = layer, .head = double(head_parameters)});
  for (int i = mine.begin; i < mine.end; ++i)
    blocks_.push_back(std::make_unique<Block>(fmt::format("{}layers.{}", name, i), i, config_, no_rope_, partition));
}

Var Encoder::operator()(Context& context, const Pass& pass, FunctionRef<Var()> begin) {
  Residual x{stages_.is_first() ? begin() : stages_.receive(context, {pass.num_tokens, config_.hidden})};
  for (const auto& block : blocks_) x = (*block)(x, pass, RecomputePolicy::What::nothing);
  if (stages_.is_last()) return x.sum();
  stages_.send(x.sum());
  return {{}, &context};
}

ModelConfig encoder_config(const EncoderShape& s) {
  ModelConfig c;
  c.layers = s.layers, c.hidden = s.hidden, c.heads = s.heads, c.ffn = s.ffn;
  c.activation = s.activation, c.is_gated = false;
  c.norm = NormKind::layer, c.norm_eps = s.norm_eps, c.bias = true;
  c.block = s.block;
  c.position = PositionKind::learned;
  c.vocab = c.context = 1;  // not its own
  complete(c);
  return c;
}

}  // namespace weft
