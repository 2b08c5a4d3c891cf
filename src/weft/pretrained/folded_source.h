// FoldedSource: a model whose factors are part of the weights that they multiply, for files that have no words for
// them.
#pragma once
#include <memory>

#include "weft/pretrained/model_source.h"

namespace weft {

// Whether some part of a layer has a factor of its own (ModelConfig::attention_out_scale and its like).
bool has_factors(const ModelConfig& config);
// The same model without these factors, nor those of scores, of both parts, of the embedding and of logits, unless
// one table is both of the last. `source` outlives it.
std::unique_ptr<ModelSource> fold_factors(const ModelSource& source);

}  // namespace weft
