// ElementState: one flat tensor for each bucket, cut into pieces.
#include "weft/optim/element_state.h"

namespace weft {

ElementState::ElementState(Context& context, std::span<const Owned> owned, IsMeant which) {
  constexpr int64_t kAlignment = 16;  // elements: pieces start on cache lines
  const auto room = [&](const Piece& p) {
    return is_meant(*p.param, which) ? (p.count + kAlignment - 1) / kAlignment * kAlignment : 0;
  };
  for (const Owned& o : owned) {
    // All of it lies as the master does, so that every rank of the shard group has as much.
    int64_t size = which == every_param ? o.master.numel() : 0;
    if (which != every_param)
      for (const Piece& p : o.pieces) size += room(p);
    std::vector<Tensor>& parts = parts_.emplace_back(o.pieces.size());
    const Tensor& all = wholes_.emplace_back();
    if (size == 0) continue;
    wholes_.back() = o.new_state(context, o.wide_dtype(), {size});
    int64_t offset = 0;
    for (size_t j = 0; j < parts.size(); ++j) {
      const Piece& p = o.pieces[j];
      if (room(p) > 0) parts[j] = all.slice_flat(which == every_param ? p.offset : offset, {p.count});
      offset += room(p);
    }
  }
}

void ElementState::visit(std::span<const Owned> owned, std::string_view param, bool is_written,
                         Optimizer::VisitState visit) const {
  for (size_t i = 0; i < owned.size(); ++i)
    for (size_t j = 0; j < owned[i].pieces.size(); ++j)
      if (of(i, j) && owned[i].pieces[j].param->name == param) {
        const Near near(owned[i], is_written ? Access::write : Access::read);
        visit_piece(owned[i], owned[i].pieces[j], of(i, j), visit);
      }
}

}  // namespace weft
