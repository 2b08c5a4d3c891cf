// Held blocks: weights of a model that only runs forward, kept in quantised blocks that products read as they lie.
#pragma once
#include <optional>
#include <span>
#include <string_view>

#include "weft/formats/ggml_type.h"
#include "weft/pretrained/model_source.h"

namespace weft {

struct BlockChoice {
  bool as_stored = false;                // what a model has in such blocks, or can have without loss, stays in them
  std::optional<BlockType> others = {};  // and other weights are rounded to blocks of this type
  // Copies what could stay in the source's mapping to memory in huge pages, which processors read faster: a mapping
  // has pages of 4 KiB, where what is fetched ahead ends and addresses are looked up anew.
  bool copies_mapped = false;
};

// What --quantize says: "auto" is as stored, "none" nothing, a type as stored and that type for others. Throws
// UsageError.
BlockChoice parse_block_choice(std::string_view text);

std::optional<BlockType> block_type_named(std::string_view name);  // "q8_0", "w4_g128"
std::vector<std::string> block_type_names();                       // all of them
std::vector<std::string> rounded_type_names();                     // those that --quantize rounds to
std::optional<GgmlType> ggml_type_of(BlockType type);              // none: no GGUF file has it
std::optional<BlockType> block_type_of(GgmlType type);             // none: no product reads it

// Rows of an embedding are looked up in blocks where these are as stored; rounded ones only products read.
// Weights are rounded to fp8 and int8 with a scale to each row of the whole, to the others with one to a block.
// Gives this rank's part of each of these weights that products read its blocks, where the choice says so. Blocks of
// whole rows in the order of the file stay where they are, in the source's mapping, which must outlive the model, and
// so do those of whole experts that lie together, unless the choice is to copy them; parts of columns and of experts,
// rows in another order, and what a file has in other pieces, are copied; where no product reads the stored blocks,
// or columns are in an order that cuts them, values are rounded, to `others` or else to Q8_0.
void hold_blocks(Context& context, const ModelSource& source, std::span<Param* const> params,
                 const BlockChoice& choice);
// Bytes of what hold_blocks could leave in the source's mapping, of all ranks together.
int64_t mapped_block_bytes(const ModelSource& source, const BlockChoice& choice);
// The same memory as of hold_blocks without what is in it, for plans: no file is read. What the source has in blocks
// is counted as held, which a mapping need not be. No source: nothing is stored in blocks.
void hold_block_shapes(Context& context, const ModelSource* source, std::span<Param* const> params,
                       const BlockChoice& choice);

}  // namespace weft
