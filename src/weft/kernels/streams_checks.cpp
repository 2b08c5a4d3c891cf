// Shape checks of the kernels of residual streams.
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

// What weights are made of; gates: whether those of writing are, too.
void check_weights(const Op& op, const Tensor& x, int64_t streams, bool gates, const Tensor& products,
                   const Tensor& rstd, const Tensor& base, const Tensor& scale) {
  const int64_t kinds = gates ? 2 : 1;
  op.shape("products", products, {x.dim(0), kinds * streams});
  op.statistic("products", products, products.numel(), x);
  op.statistic("rstd", rstd, x.dim(0), x);
  op.count("base", base, kinds * streams);
  op.dtype("base", base, x.dtype());
  op.count("scale", scale, kinds);
  op.dtype("scale", scale, x.dtype());
}

void check_gates(const Op& op, std::string_view what, const Tensor& gates, int64_t streams, const Tensor& x) {
  op.shape(what, gates, {x.dim(0), streams});
  op.statistic(what, gates, gates.numel(), x);
}

}  // namespace

void check_read_streams(const ReadStreamsArgs& a) {
  const Op op{"read_streams"};
  const int64_t streams = count_streams(op, a.x, a.y);
  op.dtype("y", a.y, a.x.dtype());
  if (a.gates) check_gates(op, "gates", a.gates, streams, a.x);
  check_weights(op, a.x, streams, bool(a.gates), a.products, a.rstd, a.base, a.scale);
}

void check_read_streams_backward(const ReadStreamsBackwardArgs& a) {
  const Op op{"read_streams_backward"};
  const int64_t streams = count_streams(op, a.x, a.dy);
  op.dtype("dy", a.dy, a.x.dtype());
  op.like("dx", a.dx, a.x);
  if (a.dsum) op.like("dsum", a.dsum, a.x);
  op.rank("dscales", a.dscales, 2);
  const bool has_gates = a.dscales.dim(1) == 2;
  op.that(has_gates || !a.dgates, "dgates are of gates, which have a scale");
  if (a.dgates) check_gates(op, "dgates", a.dgates, streams, a.x);
  check_weights(op, a.x, streams, has_gates, a.products, a.rstd, a.base, a.scale);
  op.like("dproducts", a.dproducts, a.products);
  op.like("dlogits", a.dlogits, a.products);
  op.statistic("dscales", a.dscales, a.x.dim(0) * (has_gates ? 2 : 1), a.x);
}

void check_write_streams(const WriteStreamsArgs& a) {
  const Op op{"write_streams"};
  const int64_t streams = count_streams(op, a.y, a.branch);
  op.dtype("branch", a.branch, a.y.dtype());
  if (a.x) op.like("x", a.x, a.y);
  if (a.gates) check_gates(op, "gates", a.gates, streams, a.y);
}

void check_write_streams_backward(const WriteStreamsBackwardArgs& a) {
  const Op op{"write_streams_backward"};
  const int64_t streams = count_streams(op, a.dy, a.dbranch);
  op.dtype("dbranch", a.dbranch, a.dy.dtype());
  op.that(bool(a.gates) == bool(a.branch), "branch stands beside gates");
  if (!a.gates) return;
  op.like("branch", a.branch, a.dbranch);
  check_gates(op, "gates", a.gates, streams, a.dy);
  check_gates(op, "dgates", a.dgates, streams, a.dy);
}

}  // namespace weft::shapes
