// Text part: the decoder inside a model that reads images as well, as a model of its own.
#pragma once
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/pretrained/stored_tensors.h"

namespace weft {

// The config.json that its decoder alone would have. Nothing where the model is a decoder and no more.
std::optional<JsonDocument> text_part_config(const JsonView& config);

// The kinds of models that have such a part, as their config.json calls them.
std::vector<std::string_view> text_part_types();

// Of a module of the decoder alone, the name inside the whole model, as newer versions of the library have it.
std::string name_inside(std::string_view module);

// The decoder's tensors under the names that they would have in a file of its own; those of other parts are not
// there. prefix: what names of adapters begin with, of which those of other parts stay, to be refused.
std::unique_ptr<StoredTensors> text_part_tensors(std::unique_ptr<StoredTensors> whole, std::string_view prefix = "");

}  // namespace weft
