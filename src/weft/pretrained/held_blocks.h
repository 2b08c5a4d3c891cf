// Held blocks: weights of a model that only runs forward, kept in quantised blocks that products read as they lie.
#pragma once
#include <optional>
#include <string_view>

#include "weft/formats/ggml_type.h"
#include "weft/pretrained/model_source.h"

namespace weft {

struct BlockChoice {
  bool as_stored = false;                // what a GGUF file has in such blocks stays in them
  std::optional<BlockType> others = {};  // and other weights are rounded to blocks of this type
};

// What --quantize says: "auto" is as stored, "none" nothing, a type as stored and that type for others. Throws
// UsageError.
BlockChoice parse_block_choice(std::string_view text);

GgmlType ggml_type_of(BlockType type);

// Gives this rank's part of each weight that products read its blocks, where the choice says so. Blocks of whole rows
// in the order of the file stay where they are, in the source's mapping, which must outlive the model; a part of the
// columns, and rows in another order, are copied.
void hold_blocks(Context& context, const ModelSource& source, Decoder& model, const BlockChoice& choice);

}  // namespace weft
