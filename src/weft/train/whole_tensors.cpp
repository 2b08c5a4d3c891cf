// WholeTensors: each element comes from the one rank that counts it.
#include "weft/train/whole_tensors.h"

#include <cstring>

#include "weft/models/decoder.h"
#include "weft/optim/piece_tensors.h"
#include "weft/parallel/data/near.h"
#include "weft/tensor/host_access.h"
#include "weft/train/model_parts.h"

namespace weft {

WholeTensors::WholeTensors(const Recipe& recipe, const Mesh& mesh, std::span<const Owned> owned)
    : mesh_(mesh), owned_(owned) {
  Decoder whole(recipe.model);  // its shapes only
  choose_trained(recipe, whole);
  for (const Param* p : whole.params()) all_.push_back({p->name, p->shape, p->trainable, p->is_nf4()});
}

void WholeTensors::visit(const std::string& name, Access access, std::span<const Tensor> parts,
                         FunctionRef<void(const Tensor&, int64_t, bool)> visit) const {
  for (size_t i = 0; i < owned_.size(); ++i)
    for (const Piece& piece : owned_[i].pieces)
      if (piece.param->name == name) {
        const Near near(owned_[i], access);
        visit_piece(owned_[i], piece, parts[i].slice_flat(piece.offset, {piece.count}), visit);
      }
}

Tensor WholeTensors::gather(const Info& info, std::span<const Tensor> parts) {
  return gather(info.shape, [&](auto&& take) { visit(info.name, Access::read, parts, take); });
}

void WholeTensors::scatter(const Info& info, const float* whole, std::span<const Tensor> parts) const {
  scatter(whole, [&](auto&& give) { visit(info.name, Access::write, parts, give); });
}

Tensor WholeTensors::gather(const Shape& shape, EachRun each_run) {
  const int64_t size = shape.numel();
  if (!whole_ || whole_.numel() < size) whole_ = memory_.empty(DType::f32, {size});
  const Tensor whole = whole_.slice_flat(0, shape);
  float* const out = whole.data<float>();
  std::fill_n(out, size, 0.0f);
  each_run([&](const Tensor& here, int64_t first, bool is_counted) {
    if (is_counted) std::memcpy(out + first, here.data<float>(), here.bytes());
  });
  mesh_.world().all_reduce(whole);
  return whole;
}

void WholeTensors::scatter(const float* whole, EachRun each_run) {
  each_run(
      [&](const Tensor& here, int64_t first, bool) { std::memcpy(here.data<float>(), whole + first, here.bytes()); });
}

std::vector<Tensor> gradients_of(Context& context, std::span<const Owned> owned) {
  std::vector<Tensor> parts;
  for (const Owned& o : owned)
    parts.push_back(on_host(context.stream, wide_gradient(context, o, 0, o.grads.numel())));
  return parts;
}

}  // namespace weft
