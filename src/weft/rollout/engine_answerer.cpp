// EngineAnswerer: each replica answers its share.
#include "weft/rollout/engine_answerer.h"

#include "weft/base/timing.h"
#include "weft/rollout/ask.h"
#include "weft/rollout/round_shape.h"

namespace weft {
EngineAnswerer::EngineAnswerer(Trainer& trainer, const Recipe& recipe, AnswererOptions options)
    : recipe_(recipe),
      options_(std::move(options)),
      replica_(trainer.mesh().data_rank() / recipe.mesh.shape.ep * recipe.mesh.shape.cp + trainer.mesh().place().cp),
      num_replicas_(num_replicas(recipe.mesh.shape)),
      ranks_(trainer.mesh().world().split(replica_, trainer.mesh().world().rank(), "answers")),
      mesh_(*ranks_, replica_shape(recipe.mesh.shape)),
      policy_(trainer, recipe, mesh_) {}

Answerer::Given EngineAnswerer::answer(std::span<const Question> questions) {
  policy_.take_weights();
  const Cut mine = even_cut(int64_t(questions.size()), replica_, num_replicas_);
  const std::span<const Question> asked = questions.subspan(size_t(mine.begin), size_t(mine.count));
  const auto begin = std::chrono::steady_clock::now();
  Given given{mine.begin, ask(policy_.model(), asked,
                              {.engine = round_options(recipe_.policy, mine.count, longest_of(asked)),
                               .sampling = {},
                               .stop_tokens = options_.stop_tokens,
                               .has_logps = true,
                               .stop = options_.stop})};
  policy_.drop_weights();
  speed_ = {};
  if (given.answers.empty()) return given;
  speed_.seconds = seconds_since(begin);
  for (const GivenAnswer& a : given.answers) speed_.tokens += int64_t(a.tokens.size());
  return given;
}

std::unique_ptr<Answerer> make_engine_answerer(Trainer& trainer, const Recipe& recipe, AnswererOptions options) {
  return std::make_unique<EngineAnswerer>(trainer, recipe, std::move(options));
}

}  // namespace weft
