// AdamW: the update of every piece that this rank owns.
#include "weft/optim/adamw.h"

#include <cmath>

#include "weft/optim/piece_tensors.h"

namespace weft {

AdamW::AdamW(Context& context, std::vector<Owned> owned, const AdamWOptions& options, IsMeant which)
    : Optimizer(context, std::move(owned)),
      options_(options),
      which_(which),
      m_(context, owned_, which),
      v_(context, owned_, which) {}

std::vector<Optimizer::State> AdamW::states_of(std::string_view param, const Shape& whole) const {
  if (!which_(param, whole)) return {};
  return {{"m", whole}, {"v", whole}};
}

void AdamW::visit_state(std::string_view param, std::string_view state, bool is_written, VisitState visit) {
  (state == "m" ? m_ : v_).visit(owned_, param, is_written, visit);
}

AdamWArgs adamw_args(const Owned& owned, const Piece& piece, const AdamWOptions& options, int64_t num_updates,
                     double lr, double grad_scale) {
  const PieceTensors t(owned, piece);
  return {.master = t.master,
          .value = t.value,
          .m = {},
          .v = {},
          .grad = t.grad,
          .grad_scale = float(grad_scale),
          .lr = float(lr),
          .beta1 = float(options.beta1),
          .beta2 = float(options.beta2),
          .eps = float(options.eps),
          .weight_decay = decay_of(piece, options.weight_decay),
          .bias_correction1 = float(1 - std::pow(options.beta1, double(num_updates))),
          .bias_correction2 = float(1 - std::pow(options.beta2, double(num_updates)))};
}

void AdamW::update(double lr, double grad_scale) {
  const ObservedOp observed(context_, "adamw", OpObserver::Phase::forward);
  const auto step = [&](size_t i, const Piece& piece, const Tensor& m, const Tensor& v) {
    AdamWArgs args = adamw_args(owned_[i], piece, options_, num_updates_, lr, grad_scale);
    args.m = m, args.v = v;
    context_.kernels.adamw(context_.stream, args);
  };
  if (which_ != every_param)
    return each_piece(owned_, [&](size_t i, size_t j, const Piece& piece) {
      if (m_.of(i, j)) step(i, piece, m_.of(i, j), v_.of(i, j));
    });
  // Pieces that decay alike at once: zeros between them stay zeros.
  for (size_t i = 0; i < owned_.size(); ++i) {
    const Near near(owned_[i], Access::write);
    const auto decays = [](const Piece& piece) { return piece.param->decays(); };
    each_alike(owned_[i].pieces, decays, [&](std::span<const Piece> alike) {
      const Piece all = joined(alike);
      step(i, all, m_.of_run(i, all.offset, all.count), v_.of_run(i, all.offset, all.count));
    });
  }
}

}  // namespace weft
