// start_from: gives a trainer the weights of a saved model.
#pragma once
#include "weft/pretrained/model_source.h"
#include "weft/train/trainer.h"

namespace weft {

// Every rank reads what it owns of each weight, whatever the mesh. What the model does not have, such as new
// adapters, keeps its initial values. Collective.
void start_from(const ModelSource& source, const Recipe& recipe, Trainer& trainer);

}  // namespace weft
