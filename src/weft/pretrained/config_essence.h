// The essence of a configuration: what two of them must agree in to compute the same.
#pragma once
#include "weft/models/model_config.h"

namespace weft {

// `config` is complete. Names of families, what only training uses and what a part that is not there would be are
// neutral, so that equality means the same computation.
ModelConfig essence(ModelConfig config);

}  // namespace weft
