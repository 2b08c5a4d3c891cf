// visit_weight: whole masters as they are, others through a buffer.
#include "weft/train/weights.h"

#include <algorithm>

#include "weft/parallel/data/near.h"
#include "weft/parallel/data/nf4_pieces.h"
#include "weft/parallel/data/wide_values.h"
#include "weft/train/host_visit.h"

namespace weft {

void visit_weight(Context& context, std::span<const Owned> owned, std::string_view param, bool is_written,
                  Optimizer::VisitState visit_host) {
  const HostVisit visit{context.stream, is_written, visit_host};
  for (const Owned& o : owned)
    for (const Piece& piece : o.pieces) {
      if (piece.param->name != param) continue;
      const Near near(o, is_written ? Access::write : Access::read);
      if (piece.param->is_nf4()) {
        check(!is_written, "{} is held as NF4, and is written whole", param);
        decode_nf4(context.stream, o, piece, visit);
      } else {
        visit_wide(context, o, piece.offset, piece.count, true, is_written, [&](const Tensor& wide, int64_t at) {
          visit_piece(o, {piece.param, piece.first + at - piece.offset, at, wide.numel()}, wide, visit);
        });
      }
    }
}

bool is_held_as_nf4(std::span<const Owned> owned, std::string_view param) {
  for (const Owned& o : owned)
    for (const Param* p : o.params)
      if (p->name == param) return p->is_nf4();
  return false;
}

void write_nf4(Context& context, std::span<const Owned> owned, std::string_view param, nf4::Encoder::Read read,
               std::span<const float> scales) {
  for (const Owned& o : owned)
    for (Param* p : o.params) {
      if (p->name != param) continue;
      const Near near(o, Access::write);
      encode_nf4(context, o, *p, read, scales);
    }
}

void visit_nf4_scales(Stream& stream, std::span<const Owned> owned, std::string_view param,
                      Optimizer::VisitState visit) {
  for (const Owned& o : owned)
    for (const Param* p : o.params) {
      if (p->name != param) continue;
      const Placement& at = p->placement;
      const bool is_first_part = std::ranges::all_of(at.begin, [](int64_t b) { return b == 0; }) && at.is_first_copy;
      visit(on_host(stream, p->nf4_scales), 0, is_first_part && o.shard->rank() == 0 && o.is_counted);
    }
}

std::vector<Owned> all_weights(const Trainer& trainer) {
  const std::span<const Owned> trained = trainer.optimizer().owned(), frozen = trainer.frozen();
  std::vector<Owned> all(trained.begin(), trained.end());
  all.insert(all.end(), frozen.begin(), frozen.end());
  return all;
}

}  // namespace weft
