// WholeTensors: each element comes from the one rank that counts it.
#include "weft/train/whole_tensors.h"

#include <cstring>

#include "weft/models/decoder.h"

namespace weft {

WholeTensors::WholeTensors(const Recipe& recipe, const Mesh& mesh, std::span<const Owned> owned)
    : mesh_(mesh), owned_(owned) {
  Decoder whole(recipe.model);  // its shapes only
  for (const Param* p : whole.params()) all_.push_back({p->name, p->shape});
}

WholeTensors::WholeTensors(std::vector<Info> all, const Mesh& mesh, std::span<const Owned> owned)
    : mesh_(mesh), owned_(owned), all_(std::move(all)) {}

void WholeTensors::each_run(const std::string& name,
                            FunctionRef<void(size_t, const Piece&, bool, int64_t, int64_t, int64_t)> visit) const {
  for (size_t i = 0; i < owned_.size(); ++i)
    for (const Piece& piece : owned_[i].pieces) {
      if (piece.param->name != name) continue;
      const Placement& placement = piece.param->placement;
      const bool is_counted = owned_[i].is_counted && placement.is_first_copy;
      placement.each_run(piece.first, piece.count, [&](int64_t local, int64_t global, int64_t n) {
        visit(i, piece, is_counted, piece.offset + local - piece.first, global, n);
      });
    }
}

Tensor WholeTensors::gather(const Info& info, std::span<const Tensor> parts) {
  const int64_t size = info.shape.numel();
  if (!whole_ || whole_.numel() < size) whole_ = memory_.empty(DType::f32, {size});
  const Tensor whole = whole_.slice_flat(0, info.shape);
  float* const out = whole.data<float>();
  std::fill_n(out, size, 0.0f);
  each_run(info.name, [&](size_t i, const Piece&, bool is_counted, int64_t flat, int64_t global, int64_t n) {
    if (is_counted) std::memcpy(out + global, parts[i].data<float>() + flat, size_t(n) * sizeof(float));
  });
  mesh_.world().all_reduce(whole);
  return whole;
}

void WholeTensors::scatter(const Info& info, const float* whole, std::span<const Tensor> parts) const {
  each_run(info.name, [&](size_t i, const Piece&, bool, int64_t flat, int64_t global, int64_t n) {
    std::memcpy(parts[i].data<float>() + flat, whole + global, size_t(n) * sizeof(float));
  });
}

std::vector<Tensor> masters_of(std::span<const Owned> owned) {
  std::vector<Tensor> parts;
  for (const Owned& o : owned) parts.push_back(o.master);
  return parts;
}

std::vector<Tensor> gradients_of(std::span<const Owned> owned) {
  std::vector<Tensor> parts;
  for (const Owned& o : owned) parts.push_back(o.grads);
  return parts;
}

}  // namespace weft
