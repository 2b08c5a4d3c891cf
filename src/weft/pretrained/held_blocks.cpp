// Held blocks: rows of a mapping, or copies of what a rank needs of them.
#include "weft/pretrained/held_blocks.h"

#include <algorithm>
#include <array>

#include "weft/formats/ggml_blocks.h"

namespace weft {
namespace {

struct Named {
  BlockType type;
  std::string_view name;
  GgmlType ggml;
};
constexpr std::array<Named, 4> kTypes = {{{BlockType::q8_0, "q8_0", GgmlType::q8_0},
                                          {BlockType::q4_0, "q4_0", GgmlType::q4_0},
                                          {BlockType::q4_k, "q4_k", GgmlType::q4_k},
                                          {BlockType::q6_k, "q6_k", GgmlType::q6_k}}};

// Bytes that belong to somebody who outlives all tensors.
struct BorrowedBuffer final : Buffer, BufferOwner {
  explicit BorrowedBuffer(Bytes all) {
    data = const_cast<std::byte*>(all.data());  // NOLINT: tensors are not const, but products only read weights
    bytes = all.size();
    owner = this;
  }
  void release(Buffer&) noexcept override { delete this; }

 private:
  ~BorrowedBuffer() = default;
};

// The shape of a rank's part.
BlockMatrix part_of(const Placement& p, BlockType type) {
  return {
      .blocks = {}, .type = type, .rows = p.shape[0], .cols = p.shape[1], .skip = p.begin[1] % block_elements(type)};
}

BlockMatrix stored_part(Context& context, const ModelSource::RowsOfBlocks& from, const Placement& p) {
  const BlockType type = from.stored.type;
  BlockMatrix m = part_of(p, type);
  const int64_t row_bytes = p.whole[1] / block_elements(type) * block_bytes(type);
  const int64_t first = p.begin[1] / block_elements(type) * block_bytes(type);
  const Shape shape{m.rows, m.row_bytes()};
  if (from.rows.keeps_order() && m.row_bytes() == row_bytes) {
    const Bytes rows = from.stored.bytes.subspan(size_t(from.rows(p.begin[0]) * row_bytes), size_t(shape.numel()));
    m.blocks = {BufferRef(new BorrowedBuffer(rows)), DType::u8, shape};
    return m;
  }
  m.blocks = context.empty(DType::u8, shape);
  auto* const out = static_cast<std::byte*>(m.blocks.raw());
  for (int64_t row = 0; row < m.rows; ++row)
    std::memcpy(out + row * m.row_bytes(), from.stored.bytes.data() + from.rows(p.begin[0] + row) * row_bytes + first,
                size_t(m.row_bytes()));
  return m;
}

// Blocks begin where they would in the whole weight, so that a rank's codes do not depend on how it is cut. What a
// last block has room for beyond the row is zeros.
BlockMatrix rounded_part(Context& context, const ModelSource& source, const Param& param, BlockType type) {
  const Placement& p = param.placement;
  BlockMatrix m = part_of(p, type);
  m.blocks = context.empty(DType::u8, {m.rows, m.row_bytes()});
  auto* const out = static_cast<std::byte*>(m.blocks.raw());
  const int64_t width = m.row_blocks() * block_elements(type), first = p.begin[1] - m.skip;
  const int64_t count = std::min(width, p.whole[1] - first);
  constexpr int64_t kRows = 16;
  context.stream.team().parallel_for(m.rows, kRows, [&](int64_t begin, int64_t end, int) {
    std::vector<float> values(size_t(width), 0.0f);
    for (int64_t row = begin; row < end; ++row) {
      source.read(param.name, (p.begin[0] + row) * p.whole[1] + first, std::span(values).first(size_t(count)));
      quantize(ggml_type_of(type), values, {out + row * m.row_bytes(), size_t(m.row_bytes())});
    }
  });
  return m;
}

}  // namespace

BlockChoice parse_block_choice(std::string_view text) {
  if (text == "auto") return {.as_stored = true};
  if (text == "none") return {};
  for (const Named& n : kTypes)
    if (n.name == text) return {.as_stored = true, .others = n.type};
  throw UsageError("--quantize {}: write auto, none, q8_0, q4_0, q4_k or q6_k", text);
}

GgmlType ggml_type_of(BlockType type) {
  return std::ranges::find(kTypes, type, [](const Named& n) { return n.type; })->ggml;
}

void hold_blocks(Context& context, const ModelSource& source, Decoder& model, const BlockChoice& choice) {
  for (Param* param : model.params()) {
    if (param->readers == Param::Readers::any || param->is_nf4()) continue;
    if (const auto stored = choice.as_stored ? source.blocks_of(param->name) : std::nullopt)
      param->hold_in_blocks(stored_part(context, *stored, param->placement));
    else if (choice.others)
      param->hold_in_blocks(rounded_part(context, source, *param, *choice.others));
  }
}

}  // namespace weft
