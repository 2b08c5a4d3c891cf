// Sgd and Lion: the update of every piece that this rank owns.
#include "weft/optim/momentum.h"

#include "weft/optim/piece_tensors.h"

namespace weft {

Sgd::Sgd(Context& context, std::vector<Owned> owned, const SgdOptions& options)
    : Optimizer(context, std::move(owned)),
      options_(options),
      m_(context, owned_, options.momentum > 0 ? every_param : no_param) {}

std::vector<Optimizer::State> Sgd::states_of(std::string_view, const Shape& whole) const {
  if (options_.momentum == 0) return {};
  return {{"m", whole}};
}

void Sgd::visit_state(std::string_view param, std::string_view, bool is_written, VisitState visit) {
  m_.visit(owned_, param, is_written, visit);
}

void Sgd::update(double lr, double grad_scale) {
  const ObservedOp observed(context_, "sgd", OpObserver::Phase::forward);
  each_piece(owned_, [&](size_t i, size_t j, const Piece& piece) {
    const PieceTensors t(owned_[i], piece);
    context_.kernels.sgd(context_.stream, {.master = t.master,
                                           .value = t.value,
                                           .m = m_.of(i, j),
                                           .grad = wide_gradient(context_, owned_[i], piece.offset, piece.count),
                                           .grad_scale = float(grad_scale),
                                           .lr = float(lr),
                                           .momentum = float(options_.momentum),
                                           .weight_decay = decay_of(piece, options_.weight_decay),
                                           .nesterov = options_.nesterov});
  });
}

Lion::Lion(Context& context, std::vector<Owned> owned, const LionOptions& options)
    : Optimizer(context, std::move(owned)), options_(options), m_(context, owned_) {}

std::vector<Optimizer::State> Lion::states_of(std::string_view, const Shape& whole) const { return {{"m", whole}}; }

void Lion::visit_state(std::string_view param, std::string_view, bool is_written, VisitState visit) {
  m_.visit(owned_, param, is_written, visit);
}

void Lion::update(double lr, double grad_scale) {
  const ObservedOp observed(context_, "lion", OpObserver::Phase::forward);
  each_piece(owned_, [&](size_t i, size_t j, const Piece& piece) {
    const PieceTensors t(owned_[i], piece);
    context_.kernels.lion(context_.stream, {.master = t.master,
                                            .value = t.value,
                                            .m = m_.of(i, j),
                                            .grad = wide_gradient(context_, owned_[i], piece.offset, piece.count),
                                            .grad_scale = float(grad_scale),
                                            .lr = float(lr),
                                            .beta1 = float(options_.beta1),
                                            .beta2 = float(options_.beta2),
                                            .weight_decay = decay_of(piece, options_.weight_decay),
                                            .softness = float(options_.softness)});
  });
}

}  // namespace weft
