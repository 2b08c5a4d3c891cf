// Export to GGUF: a model, wherever it comes from, as a file that llama.cpp reads.
#pragma once
#include <optional>

#include "weft/formats/ggml_type.h"
#include "weft/pretrained/export.h"

namespace weft {

struct GgufExportOptions {
  std::optional<GgmlType> type;  // of matrices; none: as they are stored, quantised ones as F32
  FileSystem* fs = &FileSystem::real();
};

// What a type is called, in any case: "f32", "fp32", "q4_k". Throws UsageError naming `option` and the choices.
GgmlType parse_ggml_type(std::string_view option, std::string_view name);

// Writes a new file of an architecture that says all that the model computes; Error when there is none. One tensor at
// a time is in memory. Norms, biases, routers and learned positions are F32; where the rows of a matrix are no
// multiple of the type's blocks, it is of the nearest type that fits, and the notes say so. The file appears when it
// is whole and on disk; after an Error there is none.
Exported export_gguf(const ModelSource& source, const std::string& path, const GgufExportOptions& options = {});

}  // namespace weft
