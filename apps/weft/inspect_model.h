// InspectModel: what `weft inspect` prints of models that others saved.
#pragma once
#include "command.h"

namespace weft::app {

// A folder of Hugging Face's, or a file of weights: .gguf, .safetensors, .bin, .pt.
bool is_saved_model(const std::string& path);
void inspect_model(const std::string& path, const Output& output);

}  // namespace weft::app
