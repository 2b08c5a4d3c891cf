// NF4 pieces: blocks of a parameter in flat memory.
#include "weft/parallel/data/nf4_pieces.h"

#include <algorithm>

#include "weft/tensor/host_access.h"

namespace weft {
namespace {

Tensor bytes_of(const Owned& owned, const Piece& piece) {
  return owned.values.slice_flat(piece.offset, {piece.count});
}

}  // namespace

void encode_nf4(Context& context, const Owned& owned, Param& param, nf4::Encoder::Read read,
                std::span<const float> scales) {
  const nf4::Layout& layout = param.nf4_layout();
  if (!param.nf4_scales) param.nf4_scales = context.empty(DType::f32, {nf4::num_groups(layout.whole_numel()) + 1});
  if (param.nf4_scales.device() == Device::meta) return;
  const nf4::Encoder encoder =
      scales.empty() ? nf4::Encoder(layout.whole_numel(), read) : nf4::Encoder(layout.whole_numel(), scales, read);
  fill_on_host(context.stream, param.nf4_scales,
               [&](const Tensor& host) { std::ranges::copy(encoder.scales(), host.data<float>()); });
  for (const Piece& piece : owned.pieces)
    if (piece.param == &param)
      fill_on_host(context.stream, bytes_of(owned, piece), [&](const Tensor& host) {
        encoder.encode(layout, piece.first / nf4::kBlockBytes, (piece.first + piece.count) / nf4::kBlockBytes, read,
                       static_cast<std::byte*>(host.raw()));
      });
}

void encode_initial(Context& context, const Owned& owned, Param& param, uint64_t seed) {
  const Param whole(param.name, Placement(param.placement.whole), param.init);
  Allocator memory;  // not part of the training's figures
  encode_nf4(context, owned, param, [&](int64_t first, std::span<float> out) {
    const Tensor values = memory.empty(DType::f32, {int64_t(out.size())});
    initialize(context, whole, seed, values, first);
    std::copy_n(values.data<float>(), out.size(), out.data());
  });
}

void decode_nf4(Stream& stream, const Owned& owned, const Piece& piece,
                FunctionRef<void(const Tensor&, int64_t, bool)> visit) {
  const Param& param = *piece.param;
  const nf4::Layout& layout = param.nf4_layout();
  const int64_t begin = piece.first / nf4::kBlockBytes, end = begin + piece.count / nf4::kBlockBytes;
  const bool is_counted = owned.is_counted && param.placement.is_first_copy;
  const Tensor blocks = on_host(stream, bytes_of(owned, piece)), scales = on_host(stream, param.nf4_scales);
  const auto* const bytes = static_cast<const std::byte*>(blocks.raw());
  constexpr int64_t kBlocks = 1 << 12;  // at a time
  Allocator memory;                     // not part of the training's figures
  const Tensor values = memory.empty(DType::f32, {kBlocks * nf4::kBlock});
  int64_t first = 0, count = 0;  // of the whole: what waits in `values`
  const auto flush = [&] {
    if (count > 0) visit(values.slice_flat(0, {count}), first, is_counted);
    count = 0;
  };
  layout.each_run(begin, end, [&](int64_t block, int64_t offset, int64_t from, int64_t n) {
    if (from != first + count || count + n > values.numel()) flush();
    if (count == 0) first = from;
    const std::byte* const at = bytes + (block - begin) * nf4::kBlockBytes;
    nf4::decode_block(at, nf4::scale_of(at, layout.whole_block(block), scales), offset, n,
                      values.data<float>() + count);
    count += n;
  });
  flush();
}

}  // namespace weft
