// LayerInput: a gate, a projection and a norm.
#include "weft/nn/layer_input.h"

#include "weft/autograd/ops/activation.h"
#include "weft/autograd/ops/add.h"

namespace weft {

LayerInput::LayerInput(const std::string& name, const LayerInputConfig& c, const Partition& partition)
    : activation_(c.activation),
      gate_(name + ".gate", outside_regions({.in = c.hidden, .out = c.width, .init_std = c.init_std, .base = c.base},
                                            partition.tensor)),
      projection_(name + ".projection",
                  outside_regions({.in = c.width, .out = c.hidden, .init_std = c.output_init_std, .base = c.base},
                                  partition.tensor)),
      norm_(name + ".norm", partition.tensor.replicated({c.hidden}), c.norm) {}

Var LayerInput::operator()(const Var& y, const Var& input) {
  return y + norm_(projection_(gated_activation(gate_(y), input, activation_)));
}

}  // namespace weft
