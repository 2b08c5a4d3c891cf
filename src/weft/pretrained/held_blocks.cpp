// Held blocks: rows of a mapping, or copies of what a rank needs of them.
#include "weft/pretrained/held_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "weft/formats/ggml_blocks.h"
#include "weft/kernels/block_layout.h"
#include "weft/pretrained/largest_magnitude.h"
#include "weft/tensor/host_access.h"

namespace weft {
namespace {

struct Named {
  BlockType type;
  std::string_view name;
  std::optional<GgmlType> ggml = {};
  bool is_rounded_to = true;
};
constexpr std::array<Named, 13> kTypes = {{{BlockType::q8_0, "q8_0", GgmlType::q8_0},
                                           {BlockType::q4_0, "q4_0", GgmlType::q4_0},
                                           {BlockType::q4_k, "q4_k", GgmlType::q4_k},
                                           {BlockType::q5_k, "q5_k", GgmlType::q5_k},
                                           {BlockType::q6_k, "q6_k", GgmlType::q6_k},
                                           {BlockType::iq4_nl, "iq4_nl", GgmlType::iq4_nl},
                                           {BlockType::iq4_xs, "iq4_xs", GgmlType::iq4_xs},
                                           {BlockType::mxfp4, "mxfp4", GgmlType::mxfp4},
                                           {BlockType::fp8, "fp8"},
                                           {BlockType::int8, "int8"},
                                           {BlockType::nf4, "nf4"},
                                           {BlockType::w4_g32, "w4_g32", {}, false},
                                           {BlockType::w4_g128, "w4_g128", {}, false}}};

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

// Rows are those of the last dim: of a matrix [N, K], or of experts' [E, N, K] one behind the other.
int64_t first_col(const Placement& p) { return p.begin[size_t(p.shape.rank() - 1)]; }

// Where row `row` of a rank's part is in the whole.
int64_t row_in_whole(const Placement& p, int64_t row) {
  if (p.shape.rank() == 2) return p.begin[0] + row;
  return (p.begin[0] + row / p.shape[1]) * p.whole[1] + p.begin[1] + row % p.shape[1];
}
// Whether the rows of a rank's part are neighbours in the whole.
bool has_neighbours(const Placement& p) { return p.shape.rank() == 2 || p.shape[1] == p.whole[1]; }

// The shape of a rank's part.
BlockMatrix part_of(const Placement& p, BlockType type) {
  const int64_t cols = p.shape[-1];
  return {.blocks = {},
          .type = type,
          .rows = p.shape.numel() / cols,
          .cols = cols,
          .skip = first_col(p) % block_elements(type)};
}

bool can_be_in_blocks(const Param& param) { return param.readers != Param::Readers::any && !param.is_nf4(); }

constexpr int64_t kRowsAtOnce = 16;

// Whether the blocks of fp8 in `rows`, each of `row_bytes`, have one scale to a row.
bool have_row_scales(std::span<const std::byte> rows, size_t row_bytes) {
  constexpr size_t kBytes = sizeof(blocks::Fp8), kScale = sizeof(float);
  for (size_t row = 0; row < rows.size(); row += row_bytes)
    for (size_t at = row + kBytes; at < row + row_bytes; at += kBytes)
      if (std::memcmp(&rows[at], &rows[row], kScale) != 0) return false;
  return true;
}

// The blocks of a row, from `first` on, in the parameter's order.
void copy_row(Bytes row, const ModelSource::RowsOfBlocks& from, int64_t first, std::span<std::byte> out) {
  const int64_t elements = block_elements(from.type);
  const auto bytes = size_t(block_bytes(from.type));
  if (from.cols.keeps_order()) return void(std::memcpy(out.data(), &row[size_t(first) * bytes], out.size()));
  for (size_t at = 0; at < out.size(); at += bytes, ++first)
    std::memcpy(&out[at], &row[size_t(from.cols(first * elements) / elements) * bytes], bytes);
}

BlockMatrix stored_part(Context& context, const ModelSource::RowsOfBlocks& from, const Placement& p,
                        bool copies_mapped) {
  const BlockType type = from.type;
  BlockMatrix m = part_of(p, type);
  const int64_t row_bytes = p.whole[-1] / block_elements(type) * block_bytes(type);  // where it lies in a file
  const int64_t first = first_col(p) / block_elements(type);                         // block of a row
  const Shape shape{m.rows, m.row_bytes()};
  const bool is_near = context.stream.allocator().device() == Device::cpu;
  const Bytes only = from.stored.size() == 1 ? from.stored[0].bytes : Bytes{};
  Bytes rows;  // which can stay where they are
  const bool keeps_order = from.rows.keeps_order() && from.cols.keeps_order();
  if (is_near && !only.empty() && keeps_order && has_neighbours(p) && m.row_bytes() == row_bytes)
    rows = only.subspan(size_t(from.rows(row_in_whole(p, 0)) * row_bytes), size_t(shape.numel()));
  if (!rows.empty() && !copies_mapped) {
    m.blocks = {BufferRef(new BorrowedBuffer(rows)), DType::u8, shape};
    return m;
  }
  m.blocks = context.empty(DType::u8, shape);
  fill_on_host(context.stream, m.blocks, [&](const Tensor& host) {
    auto* const out = static_cast<std::byte*>(host.raw());
    context.stream.team().parallel_for(m.rows, kRowsAtOnce, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        const std::span to(out + row * m.row_bytes(), size_t(m.row_bytes()));
        const int64_t in_whole = row_in_whole(p, row);
        const auto& [bytes, info] = from.stored[size_t(in_whole / from.rows_of_each)];
        const int64_t in_file = from.rows(in_whole % from.rows_of_each);
        if (bytes.empty())
          from.tensors->copy_blocks(*info, in_file, first, to);
        else
          copy_row(bytes.subspan(size_t(in_file * row_bytes), size_t(row_bytes)), from, first, to);
      }
    });
    if (type == BlockType::fp8) m.has_row_scales = have_row_scales({out, host.bytes()}, size_t(m.row_bytes()));
  });
  forget_mapped(rows);
  return m;
}

// Whole blocks of a row; largest: of the magnitudes of the whole row.
void round_to(BlockType type, std::span<const float> values, float largest, std::span<std::byte> out) {
  if (const std::optional<GgmlType> ggml = ggml_type_of(type)) return quantize(*ggml, values, out);
  const auto each = [&](auto encode) {
    for (std::byte* at = out.data(); !values.empty();) {
      const auto block = encode(values.data());
      std::memcpy(at, &block, sizeof(block));
      at += sizeof(block), values = values.subspan(size_t(block.kSize));
    }
  };
  if (type == BlockType::fp8) return each([&](const float* x) { return blocks::Fp8::encode(x, largest); });
  if (type == BlockType::int8) return each([&](const float* x) { return blocks::Int8::encode(x, largest); });
  each([](const float* x) { return blocks::Nf4::encode(x); });
}

// Blocks begin where they would in the whole weight and scales are of whole rows, so that a rank's codes do not
// depend on how it is cut. What a last block has room for beyond the row is zeros.
BlockMatrix rounded_part(Context& context, const ModelSource& source, const Param& param, BlockType type) {
  const Placement& p = param.placement;
  BlockMatrix m = part_of(p, type);
  m.blocks = context.empty(DType::u8, {m.rows, m.row_bytes()});
  const bool has_scale_of_row = type == BlockType::fp8 || type == BlockType::int8;
  m.has_row_scales = type == BlockType::fp8;
  const int64_t width = m.row_blocks() * block_elements(type), first = first_col(p) - m.skip, cols = p.whole[-1];
  const int64_t read_first = has_scale_of_row ? 0 : first,
                read_end = has_scale_of_row ? cols : std::min(first + width, cols);
  const std::string name = fmt::format("{}: {}", source.path(), param.name);
  fill_on_host(context.stream, m.blocks, [&](const Tensor& host) {
    auto* const out = static_cast<std::byte*>(host.raw());
    context.stream.team().parallel_for(m.rows, kRowsAtOnce, [&](int64_t begin, int64_t end, int) {
      std::vector<float> values(size_t(std::max(read_end, first + width) - read_first), 0.0f);
      const std::span<float> of_file = std::span(values).first(size_t(read_end - read_first));
      for (int64_t row = begin; row < end; ++row) {
        source.read(param.name, row_in_whole(p, row) * cols + read_first, of_file);
        const float largest = largest_magnitude(of_file, name);
        round_to(type, std::span(values).subspan(size_t(first - read_first), size_t(width)), largest,
                 {out + row * m.row_bytes(), size_t(m.row_bytes())});
      }
    });
  });
  return m;
}

// In which blocks a weight is held, if it is.
struct Held {
  BlockType type;
  bool stays;  // as it is stored
};
std::optional<Held> held_as(const Param& param, const std::optional<ModelSource::RowsOfBlocks>& stored,
                            const BlockChoice& choice) {
  if (stored && !stored->stored.empty()) return Held{stored->type, true};
  const std::optional<BlockType> type = choice.others || !stored ? choice.others : stored->type;
  return type && param.is_multiplied() ? std::optional(Held{*type, false}) : std::nullopt;
}

}  // namespace

BlockChoice parse_block_choice(std::string_view text) {
  if (text == "auto") return {.as_stored = true};
  if (text == "none") return {};
  for (const Named& n : kTypes)
    if (n.name == text && n.is_rounded_to) return {.as_stored = true, .others = n.type};
  throw UsageError("--quantize {}: write auto, none or one of {}", text, fmt::join(rounded_type_names(), ", "));
}

std::optional<BlockType> block_type_named(std::string_view name) {
  for (const Named& n : kTypes)
    if (n.name == name) return n.type;
  return {};
}

std::vector<std::string> block_type_names() {
  std::vector<std::string> names;
  for (const Named& n : kTypes) names.emplace_back(n.name);
  return names;
}

std::vector<std::string> rounded_type_names() {
  std::vector<std::string> names;
  for (const Named& n : kTypes)
    if (n.is_rounded_to) names.emplace_back(n.name);
  return names;
}

std::optional<BlockType> block_type_of(GgmlType type) {
  for (const Named& n : kTypes)
    if (n.ggml == type) return n.type;
  return {};
}

std::optional<GgmlType> ggml_type_of(BlockType type) {
  return std::ranges::find(kTypes, type, [](const Named& n) { return n.type; })->ggml;
}

void hold_blocks(Context& context, const ModelSource& source, std::span<Param* const> params,
                 const BlockChoice& choice) {
  for (Param* param : params) {
    if (!can_be_in_blocks(*param)) continue;
    const auto stored = choice.as_stored ? source.blocks_of(param->name) : std::nullopt;
    const std::optional<Held> held = held_as(*param, stored, choice);
    if (held && held->stays)
      param->hold_in_blocks(stored_part(context, *stored, param->placement, choice.copies_mapped));
    else if (held)
      param->hold_in_blocks(rounded_part(context, source, *param, held->type), param->has_rows_read());
  }
}

int64_t mapped_block_bytes(const ModelSource& source, const BlockChoice& choice) {
  int64_t bytes = 0;
  if (!choice.as_stored) return bytes;
  for (const ParamNames& names : source.names())
    if (const auto stored = source.blocks_of(names.param))
      for (const ModelSource::RowsOfBlocks::Matrix& matrix : stored->stored) bytes += int64_t(matrix.bytes.size());
  return bytes;
}

void hold_block_shapes(Context& context, const ModelSource* source, std::span<Param* const> params,
                       const BlockChoice& choice) {
  for (Param* param : params) {
    if (!can_be_in_blocks(*param)) continue;
    const auto stored = choice.as_stored && source ? source->blocks_of(param->name) : std::nullopt;
    const std::optional<Held> held = held_as(*param, stored, choice);
    if (!held) continue;
    BlockMatrix m = part_of(param->placement, held->type);
    m.blocks = context.empty(DType::u8, {m.rows, m.row_bytes()});
    param->hold_in_blocks(std::move(m), !held->stays && param->has_rows_read());
  }
}

}  // namespace weft
