// EngineAnswerer: answers of the model that is being trained come from the engine that serves it.
#pragma once
#include <memory>

#include "weft/rollout/policy_model.h"
#include "weft/serve/continuous_engine.h"
#include "weft/train/policy/answerer.h"

namespace weft {

// Each replica of the model, of the ranks that hold it together, answers its share of the questions, in a cache that
// is there while they are answered. Answers are a function of question and model, whatever the mesh.
class EngineAnswerer final : public Answerer {
 public:
  // The trainer and the recipe outlive this. Collective.
  EngineAnswerer(Trainer& trainer, const Recipe& recipe, AnswererOptions options);

  Given answer(std::span<const Question> questions) override;
  Speed speed() const override { return speed_; }

 private:
  const Recipe& recipe_;
  AnswererOptions options_;
  int replica_, num_replicas_;
  std::unique_ptr<Communicator> ranks_;  // of a replica
  Mesh mesh_;
  PolicyModel policy_;
  Speed speed_;
};

// As a run asks for one (RunOptions::make_answerer).
std::unique_ptr<Answerer> make_engine_answerer(Trainer& trainer, const Recipe& recipe, AnswererOptions options);

}  // namespace weft
