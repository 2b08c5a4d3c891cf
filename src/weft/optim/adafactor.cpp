// Adafactor: moments over groups of ranks, then the update of this rank's pieces.
#include "weft/optim/adafactor.h"

#include <cmath>

#include "weft/optim/piece_tensors.h"

namespace weft {

Adafactor::Adafactor(Context& context, std::vector<Owned> owned, const AdafactorOptions& options)
    : Optimizer(context, std::move(owned)), options_(options) {
  int64_t num_squares = 0;
  for (const Owned& o : owned_) {
    BucketState& bucket = buckets_.emplace_back();
    bucket.first_square = num_squares;
    int64_t size = 0;
    for (const Param* p : o.params) {
      const auto piece = std::find_if(o.pieces.begin(), o.pieces.end(), [&](const Piece& x) { return x.param == p; });
      bucket.items.push_back({Matrices(*p), piece == o.pieces.end() ? nullptr : &*piece, size, num_squares});
      size += bucket.items.back().size(), num_squares += bucket.items.back().matrices.count;
    }
    bucket.num_squares = num_squares - bucket.first_square;
    bucket.moments = o.new_state(context_, o.wide_dtype(), {size});
  }
  squares_ = context_.stream.host_memory().empty(DType::f64, {num_squares});
}

std::vector<Optimizer::State> Adafactor::states_of(std::string_view param, const Shape& whole) const {
  // The moment of the one row takes part in nothing.
  if (whole.rank() < 2 || is_stack_of_vectors(param, whole)) return {{"v", whole}};
  const auto dims = whole.dims();
  std::vector<int64_t> rows(dims.begin(), dims.end() - 1), cols(dims.begin(), dims.end() - 2);
  cols.push_back(dims.back());
  return {{"row", Shape(rows)}, {"col", Shape(cols)}};
}

void Adafactor::visit_state(std::string_view param, std::string_view state, bool is_written, VisitState visit) {
  for (size_t b = 0; b < buckets_.size(); ++b)
    for (const Item& item : buckets_[b].items) {
      const Matrices& m = item.matrices;
      if (m.param->name != param) continue;
      const Owned& o = owned_[b];
      const Near near(o, is_written ? Access::write : Access::read);
      const bool is_counted = o.is_counted && o.shard->rank() == 0 && o.tensor->rank() == 0;
      const bool is_row = state == "row";
      const int64_t n = is_row ? m.rows.total : m.cols.total;
      for (int64_t i = 0; i < m.count; ++i) {
        const int64_t at = item.offset + i * (m.rows.total + m.cols.total) + (is_row ? 0 : m.rows.total);
        visit(buckets_[b].moments.slice_flat(at, {n}), (m.first + i) * n, is_counted);
      }
    }
}

// Calls visit(its number in squares_, MatrixPiece of the gradient here, the piece, its offset in the piece) for each
// matrix of which this rank owns some; rows and columns are those of `work` that lie in this rank's part of the
// matrix.
template <class Visit>
void Adafactor::each_piece(size_t bucket, float grad_scale, Visit&& visit) {
  const BucketState& state = buckets_[bucket];
  for (const Item& item : state.items) {
    const Matrices& m = item.matrices;
    if (!item.piece || m.local_size() == 0) continue;
    const Piece& piece = *item.piece;
    const int64_t end = piece.first + piece.count;
    for (int64_t at = piece.first; at < end;) {
      const int64_t i = at / m.local_size(), next = std::min(end, (i + 1) * m.local_size());
      const int64_t rows = item.offset + i * (m.rows.total + m.cols.total), cols = rows + m.rows.total;
      const MatrixPiece grad{.x = wide_gradient(context_, owned_[bucket], piece.offset + at - piece.first, next - at),
                             .scale = grad_scale,
                             .first = at - i * m.local_size(),
                             .rows = state.work.slice_flat(rows + m.rows.begin, {m.rows.count}),
                             .cols = state.work.slice_flat(cols + m.cols.begin, {m.cols.count})};
      visit(item.first_square + i, grad, piece, at - piece.first);
      at = next;
    }
  }
}

void Adafactor::update_moments(size_t bucket, float grad_scale) {
  BucketState& state = buckets_[bucket];
  const Kernels& k = context_.kernels;
  state.work = context_.empty_like(state.moments);
  k.fill(context_.stream, state.work, 0);
  each_piece(bucket, grad_scale, [&](int64_t, const MatrixPiece& grad, const Piece& piece, int64_t) {
    if (piece.param->placement.is_first_copy) k.add_factor_sums(context_.stream, grad);
  });
  owned_[bucket].shard->all_reduce(state.work);
  owned_[bucket].tensor->all_reduce(state.work);
  const double beta = 1 - std::pow(double(num_updates_), -options_.decay_exponent);
  for (const Item& item : state.items) {
    const Matrices& m = item.matrices;
    int64_t at = item.offset;
    const auto moment = [&](int64_t n, int64_t count, bool is_normalised) {
      k.factor_moment(context_.stream, {.moment = state.moments.slice_flat(at, {n}),
                                        .sums = state.work.slice_flat(at, {n}),
                                        .count = float(count),
                                        .beta = float(beta),
                                        .eps = float(options_.eps),
                                        .is_normalised = is_normalised});
      at += n;
    };
    for (int64_t i = 0; i < m.count; ++i)
      moment(m.rows.total, m.cols.total, true), moment(m.cols.total, m.rows.total, false);
  }
}

// Into squares_: of this bucket's matrices, over its groups.
void Adafactor::add_squares(size_t bucket, float grad_scale) {
  const BucketState& state = buckets_[bucket];
  const Tensor squares = squares_.slice_flat(state.first_square, {state.num_squares});
  double* const sums = squares_.data<double>();
  std::fill_n(squares.data<double>(), state.num_squares, 0.0);
  each_piece(bucket, grad_scale, [&](int64_t k, const MatrixPiece& grad, const Piece& piece, int64_t) {
    if (!piece.param->placement.is_first_copy) return;
    sums[k] += context_.kernels.factored_squares(context_.stream, grad);
  });
  owned_[bucket].shard->all_reduce(squares);
  owned_[bucket].tensor->all_reduce(squares);
}

void Adafactor::update_weights(size_t bucket, float lr, float grad_scale) {
  const Owned& o = owned_[bucket];
  each_piece(bucket, grad_scale, [&](int64_t k, const MatrixPiece& grad, const Piece& piece, int64_t begin) {
    const double rms = std::sqrt(squares_.data<double>()[k] / double(Matrices(*piece.param).whole_size()));
    const Piece part{piece.param, piece.first + begin, piece.offset + begin, grad.x.numel()};
    const PieceTensors t(o, part);
    context_.kernels.adafactor(context_.stream, {.master = t.master,
                                                 .value = t.value,
                                                 .grad = grad,
                                                 .lr = lr,
                                                 .factor = float(1 / std::max(1.0, rms / options_.clip_threshold)),
                                                 .weight_decay = decay_of(piece, options_.weight_decay)});
  });
  buckets_[bucket].work = {};
}

void Adafactor::update(double lr, double grad_scale) {
  const ObservedOp observed(context_, "adafactor", OpObserver::Phase::forward);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Near near(owned_[b], Access::write);
    update_moments(b, float(grad_scale));
    add_squares(b, float(grad_scale));
    update_weights(b, float(lr), float(grad_scale));
  }
}

}  // namespace weft
