// estimate_memory: two steps on the meta device.
#include "weft/train/memory_estimate.h"

#include "weft/comm/trace/trace.h"
#include "weft/train/counted_objective.h"

namespace weft {

MemoryEstimate estimate_memory(const Recipe& recipe, int rank, const ModelConfig* teacher) {
  // The copies of weights that matrix products like are those of the backend that will run.
  Kernels kernels = meta_kernels();
  if (recipe.mesh.device == Device::cpu) kernels.packed_matmul_b_bytes = cpu_kernels().packed_matmul_b_bytes;
  ThreadTeam team(1);
  Allocator memory(Device::meta);
  Stream stream(team, memory);
  Context context{kernels, stream};
  const auto world = make_trace_communicator(rank, recipe.mesh.size());
  const EqualRows batches(recipe);
  Trainer trainer(context, *world, recipe, batches);
  const std::unique_ptr<Objective> objective = counted_objective(recipe, batches, teacher, trainer);
  trainer.set_objective(objective.get());
  trainer.step();
  trainer.step();
  return {
      .state_bytes = memory.stats().live_bytes, .nf4 = nf4_held(trainer), .peak_bytes = memory.stats().peak_bytes};
}

std::vector<MemoryEstimate> estimate_memory(const Recipe& recipe) {
  const MeshShape& mesh = recipe.mesh.shape;
  std::vector<MemoryEstimate> all(size_t(mesh.size()));
  const std::optional<ModelConfig> teacher = beside_of(recipe);
  // Data- and context-parallel ranks of one stage and one part of the weights hold as much as each other, but for
  // optimizers that keep more of some parameters than of others, where these are sharded.
  const OptimizerKind kind = recipe.optimizer.kind;
  const bool is_even =
      recipe.mesh.zero == Zero::none || (kind != OptimizerKind::adamw8bit && kind != OptimizerKind::muon);
  const int stage = mesh.size() / mesh.pp, stride = is_even ? mesh.tp : stage;
  for (int pp = 0; pp < mesh.pp; ++pp)
    for (int first = pp * stage; first < pp * stage + stride; ++first) {
      const MemoryEstimate estimate = estimate_memory(recipe, first, teacher ? &*teacher : nullptr);
      for (int rank = first; rank < (pp + 1) * stage; rank += stride) all[size_t(rank)] = estimate;
    }
  return all;
}

}  // namespace weft
