// round_options: a cache with room for all that is answered at once.
#include "weft/rollout/round_shape.h"

#include <algorithm>

#include "weft/base/ceil_div.h"

namespace weft {

MeshShape replica_shape(const MeshShape& all) {
  return {.pp = all.pp, .replicate = 1, .shard = all.ep, .cp = 1, .tp = all.tp, .ep = all.ep};
}

int num_replicas(const MeshShape& all) { return all.dp() / all.ep * all.cp; }

int64_t answers_of_replica(const Recipe& recipe) {
  const int64_t answers = recipe.train.global_batch * recipe.policy.updates;
  return ceil_div(answers, int64_t(num_replicas(recipe.mesh.shape)));
}

ContinuousOptions round_options(const PolicyConfig& config, int64_t answers, int64_t longest) {
  ContinuousOptions o;
  o.max_running = std::min(config.running, answers);
  o.tokens_per_step = std::max(o.tokens_per_step, o.max_running);
  o.kv_blocks = o.max_running * (ceil_div(longest, o.block_tokens) + 1);
  o.max_waiting = answers;
  return o;
}

ContinuousOptions round_options(const Recipe& recipe) {
  return round_options(recipe.policy, answers_of_replica(recipe), recipe.train.seq_len + 1);
}

}  // namespace weft
