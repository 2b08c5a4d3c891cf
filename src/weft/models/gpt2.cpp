// The GPT-2 family. Source of the shapes: Radford et al., 2019.
#include "weft/models/gpt2.h"

namespace weft {
namespace {

ModelConfig shape(int64_t layers, int64_t heads, int64_t hidden) {
  ModelConfig c;
  c.family = "gpt2";
  c.layers = layers, c.heads = heads, c.hidden = hidden;
  c.vocab = 50257, c.context = 1024;
  c.tie_embeddings = true, c.bias = true;
  c.norm = NormKind::layer;
  c.activation = Activation::gelu_tanh, c.is_gated = false;
  c.position = PositionKind::learned;
  return c;
}

ModelConfig defaults() {
  ModelConfig c = shape(0, 0, 0);
  c.vocab = c.context = 0;
  return c;
}

}  // namespace

const Family& gpt2_family() {
  static const Family family{defaults(),
                             {{"gpt2-124m", shape(12, 12, 768)},
                              {"gpt2-355m", shape(24, 16, 1024)},
                              {"gpt2-774m", shape(36, 20, 1280)},
                              {"gpt2-1.5b", shape(48, 25, 1600)}}};
  return family;
}

}  // namespace weft
