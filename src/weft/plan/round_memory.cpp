// round_memory: the engine's ranks over meta memory.
#include "weft/plan/round_memory.h"

#include <algorithm>

#include "weft/plan/served_rank.h"
#include "weft/rollout/round_shape.h"

namespace weft::plan {

std::vector<int64_t> round_memory(const Recipe& recipe, bool packs_weights) {
  const ContinuousOptions o = round_options(recipe);
  const ServedModel model{.config = recipe.model, .dtype = recipe.dtype()};
  const int64_t states_of_each = model.config.has_states() ? 2 : 1;  // its own and a kept one
  const CacheShape cache{
      .num_blocks = o.kv_blocks, .block_tokens = o.block_tokens, .num_states = o.max_running * states_of_each};
  // Values that lie in a rank of training as in one that serves are one memory (PolicyModel).
  const bool shares_values = recipe.mesh.zero != Zero::parameters && recipe.mesh.virtual_stages == 1;
  std::vector<int64_t> all;
  for (const auto& rank : serve_stages(model, replica_shape(recipe.mesh.shape), cache, packs_weights)) {
    const int64_t longest = recipe.train.seq_len, prompt = std::min(longest, o.tokens_per_step);
    const AlikeRows answers{.sequences = o.max_running, .rows = 1, .first = longest - 1};
    const AlikeRows read{.sequences = 1, .rows = prompt, .first = longest - prompt};
    rank->step({&answers, 1});
    rank->step({&read, 1});
    const ServedMemory m = rank->memory();
    all.push_back(m.cache + m.states + m.step + m.weights - (shares_values ? rank->value_bytes() : 0));
  }
  return all;
}

}  // namespace weft::plan
