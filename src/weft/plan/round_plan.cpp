// plan_round: the engine's ranks over meta memory.
#include "weft/plan/round_plan.h"

#include <algorithm>
#include <cmath>

#include "weft/plan/serve_time.h"
#include "weft/plan/served_rank.h"
#include "weft/rollout/round_shape.h"

namespace weft::plan {
namespace {

class Round {
 public:
  Round(const Recipe& recipe, bool packs_weights) : recipe_(recipe), options_(round_options(recipe)) {
    const ServedModel model{.config = recipe.model, .dtype = recipe.dtype()};
    const int64_t states_of_each = model.config.has_states() ? 2 : 1;  // its own and a kept one
    stages_ = serve_stages(model, replica_shape(recipe.mesh.shape),
                           {.num_blocks = options_.kv_blocks,
                            .block_tokens = options_.block_tokens,
                            .num_states = options_.max_running * states_of_each},
                           packs_weights);
  }

  std::vector<int64_t> memory() {
    // Values that lie in a rank of training as in one that serves are one memory (PolicyModel).
    const bool shares_values = recipe_.mesh.zero != Zero::parameters && recipe_.mesh.virtual_stages == 1;
    const int64_t longest = recipe_.train.seq_len, prompt = std::min(longest, options_.tokens_per_step);
    std::vector<int64_t> all;
    for (const auto& rank : stages_) {
      const AlikeRows answers{.sequences = options_.max_running, .rows = 1, .first = longest - 1};
      const AlikeRows read{.sequences = 1, .rows = prompt, .first = longest - prompt};
      rank->step({&answers, 1});
      rank->step({&read, 1});
      const ServedMemory m = rank->memory();
      all.push_back(m.cache + m.states + m.step + m.weights - (shares_values ? rank->value_bytes() : 0));
    }
    return all;
  }

  double seconds(const CostModel& costs) const {
    const PolicyConfig& c = recipe_.policy;
    const auto answers = double(answers_of_replica(recipe_));
    const int64_t prompt = std::max<int64_t>(recipe_.train.seq_len + 1 - c.max_tokens, 1);
    const int64_t piece = std::min(prompt, options_.tokens_per_step);
    const AlikeRows token{.sequences = options_.max_running, .rows = 1, .first = prompt + c.max_tokens / 2};
    const AlikeRows read{.sequences = 1, .rows = piece, .first = (prompt - piece) / 2};
    const double steps = std::max(answers / double(options_.max_running), 1.0) * double(c.max_tokens);
    const double pieces = std::ceil(answers / double(c.answers)) * double(prompt) / double(piece);
    return steps * seconds_of(token, costs) + pieces * seconds_of(read, costs);
  }

 private:
  double seconds_of(const AlikeRows& rows, const CostModel& costs) const {
    return time_of(trace_step(stages_, {&rows, 1}), costs).step_s;
  }

  const Recipe& recipe_;
  const ContinuousOptions options_;
  std::vector<std::unique_ptr<ServedRank>> stages_;
};

}  // namespace

std::vector<int64_t> round_memory(const Recipe& recipe, bool packs_weights) {
  return Round(recipe, packs_weights).memory();
}

RoundPlan plan_round(const Recipe& recipe, const CostModel& costs) {
  Round round(recipe, costs.is_shared());
  RoundPlan plan{.bytes = round.memory(), .seconds = round.seconds(costs)};
  const double tokens = double(recipe.train.global_batch * recipe.policy.updates * recipe.policy.max_tokens);
  plan.tokens_per_s = tokens / plan.seconds;
  return plan;
}

}  // namespace weft::plan
