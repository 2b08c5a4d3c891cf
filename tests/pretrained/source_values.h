// values_of: all numbers of a parameter, as an opened model reads them.
#pragma once
#include <vector>

#include "weft/pretrained/model_source.h"

namespace weft {

inline std::vector<float> values_of(const ModelSource& source, const ParamNames& names) {
  std::vector<float> values(size_t(names.shape.numel()));
  source.read(names.param, 0, values);
  return values;
}

}  // namespace weft
