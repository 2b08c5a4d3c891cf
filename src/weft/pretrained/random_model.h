// random_model: a published shape with its initial weights, for measuring what needs no trained model.
#pragma once
#include <memory>
#include <string_view>

#include "weft/pretrained/model_source.h"

namespace weft {

// How such a model is named where others are by their path: "random:llama-1b".
constexpr std::string_view kRandomModelPrefix = "random:";

// From seed 0: the same values on every mesh. Its tokenizer reads bytes; name: for messages.
std::unique_ptr<ModelSource> random_model(std::string name, const ModelConfig& config);

}  // namespace weft
