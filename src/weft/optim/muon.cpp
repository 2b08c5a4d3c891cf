// Muon: who puts together which matrix, and the exchange.
#include "weft/optim/muon.h"

#include <cmath>
#include <numeric>

#include "weft/optim/orthogonalize.h"
#include "weft/optim/piece_tensors.h"

namespace weft {
namespace {

bool is_rest(std::string_view param, const Shape& whole) { return !is_hidden_matrix(param, whole); }

}  // namespace

bool is_hidden_matrix(std::string_view param, const Shape& whole) {
  return whole.rank() >= 2 && param.starts_with("layers.") && !is_stack_of_vectors(param, whole);
}

Muon::Muon(Context& context, std::vector<Owned> owned, const MuonOptions& options)
    : Optimizer(context, std::move(owned)),
      options_(options),
      rest_(context, owned_, options.adamw, is_rest),
      m_(context, owned_, is_hidden_matrix) {
  size_t turn = 0;
  for (const Owned& o : owned_) plans_.push_back(make_plan(o, turn));
}

// turn: whose the next matrix is, over all buckets, so that every rank has about as many.
Muon::Plan Muon::make_plan(const Owned& o, size_t& turn) const {
  Plan plan;
  const auto size = size_t(o.shard->size());
  plan.send_counts.assign(size, 0), plan.receive_counts.assign(size, 0);
  std::vector<std::vector<size_t>> indices(size);  // of params, by the rank that puts them together
  for (size_t i = 0; i < o.params.size(); ++i)
    if (is_meant(*o.params[i], is_hidden_matrix)) indices[turn++ % size].push_back(i), plan.has_matrices = true;
  const int me = o.shard->rank();
  for (size_t rank = 0; rank < size; ++rank)
    for (const size_t i : indices[rank]) {
      plan.send_counts[rank] += o.cut_of(i, me).count;
      for (size_t j = 0; j < o.pieces.size(); ++j)
        if (o.pieces[j].param == o.params[i]) plan.pieces.push_back(j);
    }
  for (const size_t i : indices[size_t(me)]) {
    plan.items.push_back({i, Matrices(*o.params[i]), {}});
    for (size_t rank = 0; rank < size; ++rank) plan.receive_counts[rank] += o.cut_of(i, int(rank)).count;
  }
  plan.num_sent = std::reduce(plan.send_counts.begin(), plan.send_counts.end());
  plan.num_received = std::reduce(plan.receive_counts.begin(), plan.receive_counts.end());
  return plan;
}

std::vector<Optimizer::State> Muon::states_of(std::string_view param, const Shape& whole) const {
  if (!is_hidden_matrix(param, whole)) return rest_.states_of(param, whole);
  return {{"momentum", whole}};
}

void Muon::visit_state(std::string_view param, std::string_view state, bool is_written, VisitState visit) {
  if (state == "momentum") return m_.visit(owned_, param, is_written, visit);
  rest_.visit_state(param, state, is_written, visit);
}

void Muon::update(double lr, double grad_scale) {
  rest_.set_num_updates(num_updates_ - 1);
  rest_.step(lr * options_.adamw_lr_ratio, grad_scale);
  const ObservedOp observed(context_, "muon", OpObserver::Phase::forward);
  for (size_t i = 0; i < owned_.size(); ++i) update_bucket(i, lr, grad_scale);
}

// The new momenta of this rank's pieces; `sent` becomes the matrices to orthogonalise.
void Muon::write_momenta(size_t i, const Tensor& sent, double grad_scale) {
  // A step of SGD from zero at a rate of -1 leaves its update.
  context_.kernels.fill(context_.stream, sent, 0);
  int64_t at = 0;
  for (const size_t j : plans_[i].pieces) {
    const Piece& piece = owned_[i].pieces[j];
    context_.kernels.sgd(context_.stream, {.master = sent.slice_flat(at, {piece.count}),
                                           .value = {},
                                           .m = m_.of(i, j),
                                           .grad = wide_gradient(context_, owned_[i], piece.offset, piece.count),
                                           .grad_scale = float(grad_scale),
                                           .lr = -1,
                                           .momentum = float(options_.momentum),
                                           .nesterov = options_.nesterov});
    at += piece.count;
  }
}

// Calls copy(part of `received`, part of the whole) for what the two have in common of item n.
template <class Copy>
void Muon::each_run(const Owned& o, const Plan& plan, size_t n, const Tensor& received, Copy&& copy) {
  const Item& item = plan.items[n];
  const Placement placement = item.matrices.in_group();
  int64_t at = 0;
  for (int rank = 0; rank < o.shard->size(); ++rank)
    for (size_t k = 0; k < plan.items.size(); ++k) {
      const Cut cut = o.cut_of(plan.items[k].index, rank);
      if (k == n)
        placement.each_run(cut.begin, cut.count, [&](int64_t local, int64_t global, int64_t count) {
          copy(received.slice_flat(at + local - cut.begin, {count}), item.whole.slice_flat(global, {count}));
        });
      at += cut.count;
    }
}

void Muon::orthogonalize_items(const Owned& o, Plan& plan, const Tensor& received) {
  const Kernels& k = context_.kernels;
  Stream& s = context_.stream;
  for (size_t n = 0; n < plan.items.size(); ++n) {
    Item& item = plan.items[n];
    const Matrices& m = item.matrices;
    item.whole = context_.empty(o.wide_dtype(), {m.count, m.rows.total, m.cols.total});
    if (o.tensor->size() > 1) k.fill(s, item.whole, 0);
    if (m.param->placement.is_first_copy)
      each_run(o, plan, n, received, [&](const Tensor& here, const Tensor& there) { k.convert(s, there, here); });
    o.tensor->all_reduce(item.whole);
  }
  for (size_t n = 0; n < plan.items.size(); ++n) {
    const Item& item = plan.items[n];
    const Matrices& m = item.matrices;
    if (int(n) % o.tensor->size() != o.tensor->rank()) continue;
    for (int64_t i = 0; i < m.count; ++i)
      orthogonalize(context_, item.whole.slice_flat(i * m.whole_size(), {m.rows.total, m.cols.total}),
                    options_.steps);
  }
  for (size_t n = 0; n < plan.items.size(); ++n) {
    Item& item = plan.items[n];
    o.tensor->broadcast(item.whole, int(n) % o.tensor->size());
    each_run(o, plan, n, received, [&](const Tensor& here, const Tensor& there) { k.convert(s, here, there); });
    item.whole = {};
  }
}

void Muon::update_weights(size_t i, const Tensor& sent, double lr) {
  int64_t at = 0;
  for (const size_t j : plans_[i].pieces) {
    const Piece& piece = owned_[i].pieces[j];
    const PieceTensors t(owned_[i], piece);
    const Shape& whole = piece.param->placement.whole;
    const double scale = 0.2 * std::sqrt(double(std::max(whole[-1], whole[-2])));
    context_.kernels.sgd(context_.stream, {.master = t.master,
                                           .value = t.value,
                                           .m = {},
                                           .grad = sent.slice_flat(at, {piece.count}),
                                           .grad_scale = float(scale),
                                           .lr = float(lr),
                                           .weight_decay = decay_of(piece, options_.weight_decay)});
    at += piece.count;
  }
}

void Muon::update_bucket(size_t i, double lr, double grad_scale) {
  Plan& plan = plans_[i];
  const Owned& o = owned_[i];
  if (!plan.has_matrices) return;
  const Near near(o, Access::write);
  const Tensor sent = context_.empty(o.wide_dtype(), {plan.num_sent});
  write_momenta(i, sent, grad_scale);
  if (o.shard->size() == 1) {
    orthogonalize_items(o, plan, sent);
  } else {
    const Tensor received = context_.empty(o.wide_dtype(), {plan.num_received});
    o.shard->all_to_all(received, plan.receive_counts, sent, plan.send_counts);
    orthogonalize_items(o, plan, received);
    o.shard->all_to_all(sent, plan.send_counts, received, plan.receive_counts);
  }
  update_weights(i, sent, lr);
}

}  // namespace weft
