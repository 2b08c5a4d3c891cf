// What a recipe trains for: the batches and the objective that its sections ask for.
#pragma once
#include <memory>

#include "weft/data/dataset.h"
#include "weft/pretrained/model_source.h"
#include "weft/train/policy/answerer.h"
#include "weft/train/policy/rewards.h"
#include "weft/train/trainer.h"

namespace weft {

// Of windows of a text, of packed examples, or of pairs.
std::unique_ptr<BatchSource> batches_for(const Recipe& recipe, TokenPart part);
// Of what a data set has to train on: these, or answers to its prompts, which it outlives.
std::unique_ptr<BatchSource> batches_for(const Recipe& recipe, const Dataset& data);

// What objectives are made of; all of it outlives them.
struct ObjectiveSources {
  const Dataset& data;
  BatchSource& batches;                     // of batches_for
  const BatchSource* valid = nullptr;       // null, or of pairs
  const ModelSource* start = nullptr;       // the recipe's, opened
  const ModelSource* teacher = nullptr;     // likewise, of path_beside
  MakeAnswerer make_answerer = {};          // of recipes with [rl]
  MakeReward make_reward = {};              // none: what [rl] says
  bool saves_reference = true;              // of pairs, in log.dir, for a run that goes on
  const std::atomic<bool>* stop = nullptr;  // see Answerer
};

// Null: the next token. The trainer has its weights, those of its start or of a checkpoint. Collective.
std::unique_ptr<Objective> make_objective(const Recipe& recipe, const ObjectiveSources& sources, Trainer& trainer);

}  // namespace weft
