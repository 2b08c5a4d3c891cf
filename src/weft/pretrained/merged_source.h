// MergedSource: a model whose adapters are part of the weights that they stand beside.
#pragma once
#include <memory>

#include "weft/pretrained/model_source.h"

namespace weft {

// `adapted` has adapters; the result has none and computes the same. A weight is w + scale * b a, with rows of the
// adapter's lengths where it has them (see parallel/dora.h).
std::unique_ptr<ModelSource> merge_adapters(std::unique_ptr<ModelSource> adapted);

}  // namespace weft
