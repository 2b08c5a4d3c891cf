// Encoder: blocks, one after the other.
#include "weft/models/encoder.h"

namespace weft {

Encoder::Encoder(const std::string& name, const ModelConfig& config, const Partition& partition)
    : config_(config), no_rope_(config_) {
  for (int64_t i = 0; i < config_.layers; ++i)
    blocks_.push_back(
        std::make_unique<Block>(fmt::format("{}layers.{}", name, i), int(i), config_, no_rope_, partition));
}

Var Encoder::operator()(const Var& x, const Pass& pass) {
  Var y = x;
  for (const auto& block : blocks_) y = (*block)(y, pass, RecomputePolicy::What::nothing);
  return y;
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
