// Export: a model, wherever it comes from, as a Hugging Face folder or as a weft checkpoint.
#pragma once
#include <optional>
#include <string>

#include "weft/kernels/block_matrix.h"
#include "weft/pretrained/hf_family.h"
#include "weft/pretrained/model_source.h"

namespace weft {

// A config.json that says all that the model computes, and the family it is of: the model's own, or the first that
// can. Throws Error naming what no family can say.
struct HfText {
  const HfFamily* family;
  std::string json;
};
HfText write_hf_config(const ModelConfig& config);

struct ExportOptions {
  std::optional<DType> dtype;  // of the weights; none: as they are stored, quantised ones as f32
  // int8, fp8, nf4 or mxfp4: of what products read (export_codes.h); the rest has `dtype`.
  std::optional<BlockType> codes;
  FileSystem* fs = &FileSystem::real();
};

struct Exported {
  std::string path;
  std::vector<std::string> notes;  // of what could not be written, for people
};

// The folder must hold nothing, and appears when it is whole (base/new_folder.h). Tensors are written one at a time.
Exported export_hugging_face(const ModelSource& source, const std::string& folder, const ExportOptions& options = {});

// As the newest checkpoint of `folder`, in fp32, without an optimizer's state.
Exported export_checkpoint(const ModelSource& source, const std::string& folder, FileSystem& fs = FileSystem::real());

}  // namespace weft
