// HyperConnection: a projection of all streams to the few numbers of which weights are made.
#include "weft/nn/hyper_connection.h"

namespace weft {
namespace {

int64_t num_weights(const HyperConnectionConfig& c) {
  return ((c.writes ? 2 : 1) + (c.mixes ? c.streams : 0)) * c.streams;
}
int64_t num_kinds(const HyperConnectionConfig& c) { return c.mixes ? 3 : c.writes ? 2 : 1; }

LinearConfig projection(const HyperConnectionConfig& c, const Partition& partition) {
  return outside_regions({.in = c.streams * c.hidden, .out = num_weights(c), .init_std = c.init_std, .is_wide = true},
                         partition.tensor);
}

constexpr float kFirstScale = 0.01f;  // what a token says of its weights counts little in the beginning

}  // namespace

HyperConnection::HyperConnection(const std::string& name, const HyperConnectionConfig& c, const Partition& partition)
    : config_(c),
      projection_(name, projection(c, partition)),
      base_(name + ".base", partition.tensor.replicated({num_weights(c)}), Init::weights_of_streams(int(c.streams))),
      scale_(name + ".scale", partition.tensor.replicated({num_kinds(c)}), Init::constant(kFirstScale)) {}

HyperConnection::Given HyperConnection::read(const Var& x) {
  auto [streams, row, gates, mix] =
      apply(*x.context, ReadStreamsOp{base_, scale_, config_.streams, config_.rule}, x, projection_(x));
  return {std::move(streams), std::move(row), std::move(gates), std::move(mix)};
}

}  // namespace weft
