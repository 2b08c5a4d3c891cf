// What a recipe trains for: the batches and the objective that its sections ask for.
#pragma once
#include <memory>

#include "weft/data/dataset.h"
#include "weft/pretrained/model_source.h"
#include "weft/train/trainer.h"

namespace weft {

// Of windows of a text, of packed examples, or of pairs.
std::unique_ptr<BatchSource> batches_for(const Recipe& recipe, TokenPart part);

// Null: the next token. batches, valid: of batches_for; valid is null or of pairs. The trainer has its weights, those
// of its start or of a checkpoint. teacher: the recipe's, opened. Everything outlives what is returned. Collective.
std::unique_ptr<Objective> make_objective(const Recipe& recipe, const BatchSource& batches, const BatchSource* valid,
                                          const ModelSource* teacher, Trainer& trainer);

}  // namespace weft
