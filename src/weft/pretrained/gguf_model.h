// The models of GGUF files: their metadata as a ModelConfig, their tensors by weft's names.
#pragma once
#include <memory>

#include "weft/formats/gguf.h"
#include "weft/pretrained/gguf_family.h"
#include "weft/pretrained/stored_tensors.h"

namespace weft {

struct GgufModel {
  ModelConfig config;
  std::vector<ParamNames> names;
  std::vector<std::string> not_weights = {};  // tensors that the model does not hold
};

// Throws Error naming the file and the key that is missing, out of range or says what weft cannot do; for an
// architecture that weft does not know, its name.
GgufModel read_gguf_model(const GgufFile& file, bool with_mtp = false);

// The tensors of a file, which outlives this; blocks are decoded as they are read.
std::unique_ptr<StoredTensors> stored_tensors(const GgufFile& file);
// Of a file that it keeps open.
std::unique_ptr<StoredTensors> open_gguf_tensors(const std::string& path);

// By its name.
bool is_gguf(const std::string& path);

}  // namespace weft
