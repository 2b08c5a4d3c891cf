// estimate_memory: two steps on the meta device.
#include "weft/train/memory_estimate.h"

#include "weft/comm/single/single.h"
#include "weft/train/trainer.h"

namespace weft {

MemoryEstimate estimate_memory(const Recipe& recipe) {
  // The copies of weights that matrix products like are those of the backend that will run.
  Kernels kernels = meta_kernels();
  kernels.packed_matmul_b_bytes = cpu_kernels().packed_matmul_b_bytes;
  ThreadTeam team(1);
  Allocator memory(Device::meta);
  Stream stream(team, memory);
  Context context{kernels, stream};
  const auto alone = make_single_communicator();
  Recipe one_rank = recipe;
  one_rank.train.global_batch /= recipe.mesh.size();
  one_rank.mesh = {};
  const SyntheticBatches batches(int32_t(recipe.train.seq_len), int32_t(one_rank.train.global_batch),
                                 int32_t(recipe.model.vocab), recipe.train.seed);
  Trainer trainer(context, *alone, one_rank, batches);
  trainer.step();
  trainer.step();
  return {memory.stats().live_bytes, memory.stats().peak_bytes};
}

}  // namespace weft
