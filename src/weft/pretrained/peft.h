// Adapters in the format of Hugging Face's PEFT: adapter_config.json and adapter_model.safetensors.
#pragma once
#include "weft/pretrained/model_source.h"

namespace weft {

inline constexpr const char* kPeftConfigName = "adapter_config.json";
inline constexpr const char* kPeftWeightsName = "adapter_model.safetensors";
inline constexpr std::string_view kPeftPrefix = "base_model.model.";  // of its tensors' names
// Of the head that scores texts, which a folder has whole.
inline constexpr std::string_view kPeftScore = "base_model.model.score.weight";

// Such a model with what the folder's adapter_config.json says, and beside which projections its tensors stand; with
// the folder's labels, where it has a head that scores texts. Throws Error naming the file and the key, or the
// tensor, that says what weft cannot do.
ModelConfig read_adapted_config(const std::string& folder, const ModelConfig& base);

// The model with the adapter of a folder beside it: its configuration has adapters, and reads give base and adapter.
// Throws Error when the model has adapters already, or the folder's are for another one.
std::unique_ptr<ModelSource> open_adapted(std::shared_ptr<const ModelSource> base, const std::string& folder);

// The adapter of a folder, apart from the model beside whose weights it stands: this rank's part of it, in `dtype`.
// source: what the model was loaded from. Throws Error as open_adapted does, and for one with lengths of rows, or
// with a head that scores texts.
std::unique_ptr<LoraSet> load_lora_set(Context& context, const ModelSource& source, Decoder& model, DType dtype,
                                       const std::string& folder);

// Writes the adapters of a model into a new folder, fp32. base: what the folder says that they are for; where that is
// a folder here of a model that reads images as well, names are those of its decoder inside it.
// Throws Error when the model has none, or PEFT has no name for one: beside parts of a fused projection, say.
void write_peft(const ModelSource& model, const std::string& base, const std::string& folder,
                FileSystem& fs = FileSystem::real());

}  // namespace weft
