// set_magnitudes: lengths of rows of adapted weights, as training with them starts.
#pragma once
#include "weft/train/trainer.h"

namespace weft {

// Every magnitude becomes the length of its row of the weight, as the ranks hold it. Collective.
void set_magnitudes(const Recipe& recipe, Trainer& trainer);

}  // namespace weft
