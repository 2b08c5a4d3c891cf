// EngineAnswerer: each replica answers its share.
#include "weft/rollout/engine_answerer.h"

#include <algorithm>

#include "weft/rollout/ask.h"
#include "weft/rollout/round_shape.h"

namespace weft {
namespace {

int data_rank_of(const MeshShape& shape, int rank) {
  const MeshPlace place = place_of(shape, rank);
  return place.replicate * shape.shard + place.shard;
}

}  // namespace

EngineAnswerer::EngineAnswerer(Trainer& trainer, const Recipe& recipe, AnswererOptions options)
    : recipe_(recipe),
      options_(std::move(options)),
      replica_(trainer.mesh().data_rank() / recipe.mesh.shape.ep),
      num_replicas_(recipe.mesh.shape.dp() / recipe.mesh.shape.ep),
      ranks_(trainer.mesh().world().split_by(
          [&](int rank) { return data_rank_of(recipe.mesh.shape, rank) / recipe.mesh.shape.ep; }, "answers")),
      mesh_(*ranks_, replica_shape(recipe.mesh.shape)),
      policy_(trainer, recipe, mesh_) {}

Answerer::Given EngineAnswerer::answer(std::span<const Question> questions) {
  using Clock = std::chrono::steady_clock;
  policy_.take_weights();
  const Cut mine = even_cut(int64_t(questions.size()), replica_, num_replicas_);
  const std::span<const Question> asked = questions.subspan(size_t(mine.begin), size_t(mine.count));
  const auto begin = Clock::now();
  Given given{mine.begin, ask(policy_.model(), asked,
                              {.engine = round_options(recipe_.policy, mine.count, longest_of(asked)),
                               .sampling = {},
                               .stop_tokens = options_.stop_tokens,
                               .has_logps = true,
                               .stop = options_.stop})};
  policy_.drop_weights();
  speed_ = {};
  if (given.answers.empty()) return given;
  speed_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (const GivenAnswer& a : given.answers) speed_.tokens += int64_t(a.tokens.size());
  return given;
}

std::unique_ptr<Answerer> make_engine_answerer(Trainer& trainer, const Recipe& recipe, AnswererOptions options) {
  return std::make_unique<EngineAnswerer>(trainer, recipe, std::move(options));
}

}  // namespace weft
