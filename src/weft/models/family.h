// Family: the defaults that models of one name share, and the published shapes among them.
#pragma once
#include <utility>
#include <vector>

#include "weft/models/model_config.h"

namespace weft {

struct Family {
  ModelConfig defaults;
  std::vector<std::pair<std::string, ModelConfig>> presets;
};

}  // namespace weft
