// The models of GGUF files: their metadata as a ModelConfig, their tensors by weft's names.
#pragma once
#include <memory>

#include "weft/formats/gguf.h"
#include "weft/models/model_config.h"
#include "weft/pretrained/param_names.h"
#include "weft/pretrained/stored_tensors.h"

namespace weft {

// Throws Error naming the file and the key that is missing, out of range or says what weft cannot do; for an
// architecture that weft does not know, its name.
ModelConfig read_gguf_config(const GgufFile& file);

// Of a model's parameters, the tensors of its file.
std::vector<ParamNames> gguf_names(const GgufFile& file, const ModelConfig& config);

// The tensors of a file, which outlives this; blocks are decoded as they are read.
std::unique_ptr<StoredTensors> stored_tensors(const GgufFile& file);

}  // namespace weft
