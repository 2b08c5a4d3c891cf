// AdamW8: codes and scales of every piece.
#include "weft/optim/adamw8.h"

#include "weft/kernels/block_codes.h"
#include "weft/optim/piece_tensors.h"

namespace weft {
namespace {

bool is_large(std::string_view, const Shape& whole) { return whole.numel() >= kLeast8BitElements; }
bool is_small(std::string_view param, const Shape& whole) { return !is_large(param, whole); }

}  // namespace

AdamW8::AdamW8(Context& context, std::vector<Owned> owned, const AdamWOptions& options, bool for_everything)
    : Optimizer(context, std::move(owned)),
      options_(options),
      is_large_(for_everything ? every_param : is_large),
      small_(context, owned_, options, for_everything ? no_param : is_small),
      m_(make_codes()),
      v_(make_codes()) {}

std::vector<std::vector<AdamW8::Codes>> AdamW8::make_codes() const {
  std::vector<std::vector<Codes>> all;
  const auto room = [&](const Piece& p) {
    return is_meant(*p.param, is_large_) ? block_codes::num_blocks(p.count) : 0;
  };
  for (const Owned& o : owned_) {
    std::vector<Codes>& parts = all.emplace_back(o.pieces.size());
    int64_t blocks = 0;
    for (const Piece& p : o.pieces) blocks += room(p);
    if (blocks == 0) continue;
    const Tensor codes = o.new_state(context_, DType::u8, {blocks * block_codes::kBlock});
    const Tensor scales = o.new_state(context_, DType::f32, {blocks});
    int64_t first = 0;
    for (size_t j = 0; j < parts.size(); ++j) {
      const Piece& p = o.pieces[j];
      if (room(p) == 0) continue;
      parts[j] = {codes.slice_flat(first * block_codes::kBlock, {p.count}), scales.slice_flat(first, {room(p)})};
      first += room(p);
    }
  }
  return all;
}

std::vector<Optimizer::State> AdamW8::states_of(std::string_view, const Shape& whole) const {
  return {{"m", whole}, {"v", whole}};
}

void AdamW8::visit_state(std::string_view param, std::string_view state, bool is_written, VisitState visit) {
  small_.visit_state(param, state, is_written, visit);
  const bool is_m = state == "m";
  for (size_t i = 0; i < owned_.size(); ++i)
    for (size_t j = 0; j < owned_[i].pieces.size(); ++j) {
      const Piece& piece = owned_[i].pieces[j];
      const Codes& c = (is_m ? m_ : v_)[i][j];
      if (!c.codes || piece.param->name != param) continue;
      const Near near(owned_[i], is_written ? Access::write : Access::read);
      const Tensor numbers = context_.empty(DType::f32, {piece.count});
      context_.kernels.decode_blocks(context_.stream, numbers, c.codes, c.scales, is_m);
      visit_piece(owned_[i], piece, numbers, visit);
      if (is_written) context_.kernels.encode_blocks(context_.stream, c.codes, c.scales, numbers, is_m);
    }
}

void AdamW8::update(double lr, double grad_scale) {
  small_.set_num_updates(num_updates_ - 1);
  small_.step(lr, grad_scale);
  const ObservedOp observed(context_, "adamw8", OpObserver::Phase::forward);
  each_piece(owned_, [&](size_t i, size_t j, const Piece& piece) {
    if (!m_[i][j].codes) return;
    context_.kernels.adamw8(context_.stream,
                            {.adamw = adamw_args(owned_[i], piece, options_, num_updates_, lr, grad_scale),
                             .m = m_[i][j].codes,
                             .v = v_[i][j].codes,
                             .m_scale = m_[i][j].scales,
                             .v_scale = v_[i][j].scales});
  });
}

}  // namespace weft
