// Stages: sends and receives between neighbours.
#include "weft/parallel/stages.h"

namespace weft {
namespace {

constexpr int kTag = 0;

}  // namespace

LayerRange Stages::layers(int64_t num_layers, const LayerCosts& costs) const {
  return place_layers(int(num_layers), count(), costs)[size_t(index())];
}

Var Stages::receive(Context& context, Shape shape) const {
  Var x{{}, &context};
  if (is_first()) return x;
  x.value = context.empty(dtype_, shape);
  ranks_->recv(x.value, index() - 1, kTag);
  return x;
}

void Stages::send(const Var& x) const {
  if (!is_last()) ranks_->send(x.value, index() + 1, kTag);
}

int32_t Stages::share(Context& context, int32_t chosen) const {
  if (!ranks_) return chosen;
  const Tensor t = context.stream.host_memory().empty(DType::i32, {1});
  *t.data<int32_t>() = chosen;
  ranks_->broadcast(t, count() - 1);
  return *t.data<int32_t>();
}

}  // namespace weft
