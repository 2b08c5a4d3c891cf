// GgufFamily: what GGUF files call the keys and tensors of one architecture, as data for both directions.
#pragma once
#include <span>
#include <string_view>

#include "weft/models/model_config.h"
#include "weft/pretrained/gguf_description.h"
#include "weft/pretrained/param_names.h"

namespace weft {

struct GgufFamily {
  std::string_view architecture;  // of general.architecture
  std::string_view family;        // weft's name of it
  void (*fields)(GgufFields&, ModelConfig&);
  std::span<const NameRow> (*names)(const ModelConfig&);
};

// The family's table, with what files call the part that predicts a token further on.
std::vector<NameRow> rows_of(const GgufFamily& family, const ModelConfig& config);
// Of a model's parameters, the tensors of a file of this family.
std::vector<ParamNames> names_of(const GgufFamily& family, const ModelConfig& config);

const GgufFamily& gguf_family_of(const GgufDescription& description);

// Throws Error naming the file and the key that is missing, out of range or says what weft cannot do; for an
// architecture that weft does not know, its name.
ModelConfig config_of(const GgufDescription& description);

// A description that says all that the model computes, of its own family or the first that can. Throws Error when
// there is none. Angles that are scaled as Llama 3's are written, and read again, as factors of each pair.
GgufDescription describe(const ModelConfig& config);

}  // namespace weft
