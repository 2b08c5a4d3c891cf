// ModelConfig as JSON: what a checkpoint's model.json holds.
#pragma once
#include <string>
#include <string_view>

#include "weft/models/model_config.h"

namespace weft {

std::string to_json(const ModelConfig& config);
// Throws Error naming `source` and what is wrong in it; the shape is checked as a recipe's is.
ModelConfig parse_model_json(std::string_view json, const std::string& source);

}  // namespace weft
