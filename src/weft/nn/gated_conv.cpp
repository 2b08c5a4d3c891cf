// GatedConv: channels are cut over the ranks of tensor parallelism.
#include "weft/nn/gated_conv.h"

#include "weft/autograd/ops/activation.h"
#include "weft/nn/ordered_tokens.h"

namespace weft {
namespace {

LinearConfig inwards(const GatedConvConfig& c, const TensorParallel& t) {
  return {.in = c.hidden,
          .out = c.hidden,
          .init_std = c.init_std,
          .out_cut = t.cut(c.hidden),
          .adapter = adapter_of(c.lora, LoraTarget::state_inputs),
          .base = c.lora.base};
}
LinearConfig outwards(const GatedConvConfig& c, const TensorParallel& t) {
  return {.in = c.hidden,
          .out = c.hidden,
          .init_std = c.output_init_std,
          .in_cut = t.cut(c.hidden),
          .is_first = t.rank() == 0,
          .adapter = adapter_of(c.lora, LoraTarget::state_output, t.size() > 1 ? &t.group() : nullptr),
          .base = c.lora.base};
}
Placement channels(const GatedConvConfig& c, const TensorParallel& t, Shape shape) {
  return Placement(shape).cut(0, t.cut(c.hidden));
}
std::optional<Placement> bias_of(const GatedConvConfig& c, const TensorParallel& t) {
  if (!c.has_conv_bias) return std::nullopt;
  return channels(c, t, {c.hidden});
}

Var product(const Var& x, const Var& y) { return gated_activation(x, y, Activation::identity); }

// Channels as heads that neighbours of a context can share: one for each of them, or single channels.
int64_t num_heads(int64_t channels, const Pass& pass) {
  const int64_t ranks = pass.context_plan ? pass.context_plan->layout().size() : 1;
  return channels % ranks == 0 ? ranks : channels;
}

}  // namespace

GatedConv::GatedConv(const std::string& name, int layer, const GatedConvConfig& c, const Partition& partition)
    : config_(c),
      tensor_(partition.tensor),
      layer_(layer),
      output_dropout_site_(name_hash(name + ".output")),
      query_(name + ".query", inwards(c, tensor_)),
      key_(name + ".key", inwards(c, tensor_)),
      value_(name + ".value", inwards(c, tensor_)),
      conv_(name + ".value_conv", channels(c, tensor_, {c.hidden, c.conv}), bias_of(c, tensor_)),
      output_(name + ".output", outwards(c, tensor_)) {}

Var GatedConv::operator()(const Var& residual, const Pass& pass, const WantedRows* wanted) {
  const auto given = [wanted](const Var& rows) { return wanted ? wanted->of(rows) : rows; };
  const Pass& asked = wanted ? wanted->pass() : pass;
  const Var x = tensor_.enter(residual);
  const auto [keys, values] = adapted_linears(x, pass, key_, value_);
  const int64_t channels = keys.value.dim(1), heads = num_heads(channels, pass), width = channels / heads;
  const OrderedTokens sequence(pass, heads);
  const Var rows = sequence.gathered(product(keys, values));
  const Recurrence past =
      sequence.past(*x.context, layer_, 0, rows.value.dtype(), {1, config_.conv - 1, rows.value.dim(1)});
  const Var seen = conv_(rows, sequence.first() * width, past, Activation::identity);
  const Var gated = product(query_(given(x), asked), given(sequence.scattered(seen, width)));
  const Var out = tensor_.leave(output_(gated, asked));
  return pass.dropout(out, config_.dropout, output_dropout_site_, tensor_.tokens(pass.num_tokens).begin);
}

}  // namespace weft
