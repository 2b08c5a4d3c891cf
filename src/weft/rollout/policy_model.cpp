// PolicyModel: weights shared where they lie alike, gathered where they do not.
#include "weft/rollout/policy_model.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "weft/parallel/data/near.h"
#include "weft/pretrained/param_values.h"
#include "weft/train/weights.h"

namespace weft {
namespace {

bool is_same_part(const Placement& a, const Placement& b) {
  return a.whole == b.whole && a.shape == b.shape && a.begin == b.begin;
}

template <class T>
std::unordered_map<std::string_view, T*> by_name(std::vector<T*> all) {
  std::unordered_map<std::string_view, T*> map;
  for (T* p : all) map.emplace(p->name, p);
  return map;
}

}  // namespace

PolicyModel::PolicyModel(Trainer& trainer, const Recipe& recipe, const Mesh& mesh)
    : trainer_(trainer),
      recipe_(recipe),
      model_(trainer.context(), mesh, recipe.model, recipe.dtype(), ForwardModel::WithoutMemory{}) {
  if (recipe.train.precision == Precision::fp8) model_.part().multiply_in_float8();
}

// Whether the trainer has the whole of what this rank needs of a parameter.
bool PolicyModel::share(const Param* theirs, Param& here) {
  if (recipe_.mesh.zero == Zero::parameters || !theirs || !theirs->value) return false;
  if (!is_same_part(theirs->placement, here.placement)) return false;
  if (theirs->is_nf4() && !here.is_nf4()) here.hold_as_nf4();
  here.value = theirs->value, here.nf4_scales = theirs->nf4_scales;
  here.value_changed();
  return true;
}

void PolicyModel::gather(WholeTensors& whole, std::span<const Owned> owned, const WholeTensors::Info& info,
                         Param* here) {
  Context& context = trainer_.context();
  const Tensor values = whole.gather(info.shape, [&](auto&& take) {
    visit_weight(context, owned, info.name, false,
                 [&](const Tensor& run, int64_t first, bool is_counted) { take(run, first, is_counted); });
  });
  if (!here) return;
  here->value = context.empty(model_.dtype(), here->shape);
  read_values(context, *here, [&](int64_t first, std::span<float> out) {
    std::memcpy(out.data(), values.data<float>() + first, out.size_bytes());
  });
  here->value_changed();
}

void PolicyModel::take_weights() {
  const std::vector<Owned> owned = all_weights(trainer_);
  WholeTensors whole(recipe_, trainer_.mesh(), owned);
  const auto here = by_name(model_.part().params());
  std::unordered_map<std::string_view, Param*> theirs;
  for (const auto& part : trainer_.model().parts()) theirs.merge(by_name(part->params()));
  // All ranks gather what any of them lacks.
  Allocator memory;
  const auto count = int64_t(whole.all().size());
  const Tensor lacks = memory.empty(DType::i32, {count});
  std::vector<Param*> params;
  for (const WholeTensors::Info& info : whole.all()) {
    const auto of = [&](const auto& map) {
      const auto found = map.find(info.name);
      return found == map.end() ? nullptr : found->second;
    };
    Param* const p = of(here);
    lacks.data<int32_t>()[params.size()] = p && !share(of(theirs), *p);
    params.push_back(p);
  }
  trainer_.mesh().world().all_reduce(lacks, Reduction::max);
  {
    const NearInTurn in_turn(owned);
    for (int64_t i = 0; i < count; ++i)
      if (lacks.data<int32_t>()[i] != 0) gather(whole, owned, whole.all()[size_t(i)], params[size_t(i)]);
  }
  for (Param* p : params)
    if (p) p->hold_packed(trainer_.context());
  const std::vector<Owned> biases = trainer_.router_biases();
  for (RouterBias* mine : model_.part().router_biases())
    for (const Owned& o : biases)
      if (const Param& bias = *o.pieces.front().param; bias.name == mine->bias.name)
        trainer_.context().stream.copy(mine->bias.value, bias.value);
}

void PolicyModel::drop_weights() {
  for (Param* p : model_.part().params()) p->drop_value();
  model_.drop_results();
}

}  // namespace weft
