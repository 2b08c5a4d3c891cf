// Mtp: two norms, a product, a block and a norm.
#include "weft/models/mtp.h"

#include "weft/autograd/ops/join_heads.h"
#include "weft/autograd/ops/reshape.h"

namespace weft {
namespace {

std::string name_of(const ModelConfig& c, const char* part = "") {
  return fmt::format("layers.{}{}", c.layers, part);
}

}  // namespace

Mtp::Mtp(const ModelConfig& c, const RopeTables& rope, const Partition& partition)
    : embedding_norm_(name_of(c, ".mtp.embedding_norm"), partition.tensor.replicated({c.hidden}), norm_config(c)),
      hidden_norm_(name_of(c, ".mtp.hidden_norm"), partition.tensor.replicated({c.hidden}), norm_config(c)),
      projection_(name_of(c, ".mtp.projection"),
                  outside_regions({.in = 2 * c.hidden, .out = c.hidden, .has_bias = c.bias, .init_std = c.init_std},
                                  partition.tensor)),
      block_(name_of(c), int(c.layers), c.mtp_block(), rope, partition),
      norm_(name_of(c, ".mtp.norm"), partition.tensor.replicated({c.hidden}), norm_config(c)) {
  check(c.position == PositionKind::rope, "a part that predicts further on has rotary positions");
}

Var Mtp::operator()(const Var& hidden, const Var& embedded, const Pass& pass, RecomputePolicy::What recomputed) {
  const int64_t rows = hidden.value.dim(0), width = hidden.value.dim(1);
  const Var h = reshape(hidden_norm_(hidden), {rows, 1, width});
  const Var both = reshape(apply(*hidden.context, JoinHeadsOp{}, embedding_norm_(embedded), h), {rows, 2 * width});
  return norm_.branch(block_({projection_(both)}, pass, recomputed))[1];
}

}  // namespace weft
