// Shape checks of the kernels of residual streams.
#include <algorithm>

#include "weft/kernels/checked_op.h"
#include "weft/kernels/shape_checks.h"

namespace weft::shapes {
namespace {

// How many streams x[T, N H] has beside rows of H.
int64_t count_streams(const Op& op, const Tensor& x, const Tensor& row) {
  op.rank("x", x, 2);
  op.rank("y", row, 2);
  op.that(row.cols() > 0 && x.cols() % row.cols() == 0, "x must have whole streams of as many columns as y");
  const int64_t streams = x.cols() / row.cols();
  op.that(streams <= kMostStreams, "x has more streams than are supported");
  op.shape("y", row, {x.dim(0), row.cols()});
  return streams;
}

// What `kinds` of weights are made of: those of reading, of writing, and of mixing.
void check_weights(const Op& op, const Tensor& x, int64_t streams, int64_t kinds, const Tensor& products,
                   const Tensor& rstd, const Tensor& base, const Tensor& scale, const StreamRule& rule) {
  const int64_t logits = std::min<int64_t>(kinds, 2) * streams + (kinds == 3 ? streams * streams : 0);
  op.shape("products", products, {x.dim(0), logits});
  op.statistic("products", products, products.numel(), x);
  op.statistic("rstd", rstd, x.dim(0), x);
  op.that(kinds < 3 || (rule.mix_steps >= 1 && rule.mix_steps <= kMostMixSteps),
          "weights of mixing are made in 1 to 32 steps");
  op.count("base", base, logits);
  op.dtype("base", base, x.dtype());
  op.count("scale", scale, kinds);
  op.dtype("scale", scale, x.dtype());
}

// Gates, or with streams^2 columns what mixes.
void check_gates(const Op& op, std::string_view what, const Tensor& gates, int64_t cols, const Tensor& x) {
  op.shape(what, gates, {x.dim(0), cols});
  op.statistic(what, gates, gates.numel(), x);
}

}  // namespace

void check_read_streams(const ReadStreamsArgs& a) {
  const Op op{"read_streams"};
  const int64_t streams = count_streams(op, a.x, a.y);
  op.dtype("y", a.y, a.x.dtype());
  if (a.gates) check_gates(op, "gates", a.gates, streams, a.x);
  if (a.mix) check_gates(op, "mix", a.mix, streams * streams, a.x);
  op.that(a.gates || !a.mix, "mix stands beside gates");
  const int64_t kinds = a.mix ? 3 : a.gates ? 2 : 1;
  check_weights(op, a.x, streams, kinds, a.products, a.rstd, a.base, a.scale, a.rule);
}

void check_read_streams_backward(const ReadStreamsBackwardArgs& a) {
  const Op op{"read_streams_backward"};
  const int64_t streams = count_streams(op, a.x, a.dy);
  op.dtype("dy", a.dy, a.x.dtype());
  op.like("dx", a.dx, a.x);
  if (a.dsum) op.like("dsum", a.dsum, a.x);
  op.rank("dscales", a.dscales, 2);
  const int64_t kinds = a.dscales.dim(1);
  op.that(kinds >= 1 && kinds <= 3, "there are 1 to 3 scales");
  op.that(kinds >= 2 || !a.dgates, "dgates are of gates, which have a scale");
  op.that(kinds == 3 || !a.dmix, "dmix is of weights that have a scale");
  if (a.dgates) check_gates(op, "dgates", a.dgates, streams, a.x);
  if (a.dmix) check_gates(op, "dmix", a.dmix, streams * streams, a.x);
  check_weights(op, a.x, streams, kinds, a.products, a.rstd, a.base, a.scale, a.rule);
  op.like("dproducts", a.dproducts, a.products);
  op.like("dlogits", a.dlogits, a.products);
  op.statistic("dscales", a.dscales, a.x.dim(0) * kinds, a.x);
}

void check_write_streams(const WriteStreamsArgs& a) {
  const Op op{"write_streams"};
  const int64_t streams = count_streams(op, a.y, a.branch);
  op.dtype("branch", a.branch, a.y.dtype());
  if (a.x) op.like("x", a.x, a.y);
  if (a.gates) check_gates(op, "gates", a.gates, streams, a.y);
  if (!a.mix) return;
  op.that(bool(a.x), "mix is of x");
  check_gates(op, "mix", a.mix, streams * streams, a.y);
}

void check_write_streams_backward(const WriteStreamsBackwardArgs& a) {
  const Op op{"write_streams_backward"};
  const int64_t streams = count_streams(op, a.dy, a.dbranch);
  op.dtype("dbranch", a.dbranch, a.dy.dtype());
  op.that(bool(a.gates) == bool(a.branch), "branch stands beside gates");
  op.that(bool(a.mix) == bool(a.x) && (a.gates || !a.mix), "x stands beside mix, and that beside gates");
  if (!a.gates) return;
  op.like("branch", a.branch, a.dbranch);
  check_gates(op, "gates", a.gates, streams, a.dy);
  check_gates(op, "dgates", a.dgates, streams, a.dy);
  if (!a.mix) return;
  op.like("x", a.x, a.dy);
  op.like("dx", a.dx, a.dy);
  check_gates(op, "mix", a.mix, streams * streams, a.dy);
  check_gates(op, "dmix", a.dmix, streams * streams, a.dy);
}

}  // namespace weft::shapes
