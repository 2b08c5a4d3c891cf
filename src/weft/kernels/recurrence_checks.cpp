// Shape checks of the kernels that hand a state from token to token.
#include "weft/kernels/shape_checks.h"

namespace weft::shapes {
namespace {

void check_like(std::string_view op, std::string_view what, const Tensor& t, const Shape& shape, DType dtype) {
  if (!t || t.shape() != shape || t.dtype() != dtype)
    throw Error("{}: {} is {}, but must be {} {}", op, what,
                t ? fmt::format("{} {}", name_of(t.dtype()), t.shape()) : "missing", name_of(dtype), shape);
}

DType wide(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// states: how many there are; 0 of a pass that keeps none.
void check_runs(std::string_view op, const TokenRuns& runs, int64_t rows, int64_t states) {
  check(runs.count == 0 || runs.runs, "{}: there are {} runs, but they are null", op, runs.count);
  int32_t row = 0;
  for (const TokenRun& r : runs) {
    if (r.begin != row || r.end < r.begin)
      throw Error("{}: a run has rows {} to {}, but must begin with row {}", op, r.begin, r.end, row);
    for (const int32_t state : {r.from, r.to})
      if (state < -1 || state >= states) throw Error("{}: a run names state {}, but there are {}", op, state, states);
    row = r.end;
  }
  check(row == rows, "{}: the runs have {} rows, but x has {}", op, row, rows);
}

template <class Args>
void check_conv(std::string_view op, const Args& args) {
  const Tensor &x = args.x, &weight = args.weight, &bias = args.bias;
  check(x && is_float(x.dtype()) && x.shape().rank() == 2, "{}: x must be given, of floats, with 2 dims", op);
  check(weight && weight.shape().rank() == 2 && weight.dim(1) >= 1 && weight.dim(1) <= kMostConvWidth,
        "{}: a weight must have 2 dims, the second from 1 to {}", op, kMostConvWidth);
  check_like(op, "weight", weight, {x.dim(1), weight.dim(1)}, x.dtype());
  if (bias) check_like(op, "bias", bias, {x.dim(1)}, x.dtype());
  check(args.f == Activation::silu || args.f == Activation::identity, "{}: f must be silu or identity", op);
}

// What a rule reads, of forward and backward passes.
template <class Args>
void check_read(std::string_view op, const Args& args) {
  const DType dtype = args.q ? args.q.dtype() : DType::f32;
  check(args.q && is_float(dtype) && args.q.shape().rank() == 3, "{}: q must be given, of floats, with 3 dims", op);
  check(args.v && args.v.shape().rank() == 3, "{}: v must be given, with 3 dims", op);
  const int64_t tokens = args.q.dim(0), heads = args.v.dim(1);
  check_like(op, "k", args.k, args.q.shape(), dtype);
  check_like(op, "v", args.v, {tokens, heads, args.v.dim(2)}, dtype);
  const bool is_by_row = args.rule == StateRule::delta && args.a && args.a.shape() != Shape{tokens, heads};
  const int64_t rates = is_by_row ? heads * args.q.dim(2) : heads;
  check_like(op, "a", args.a, {tokens, rates}, wide(dtype));
  check_like(op, "rate", args.rate, {heads}, dtype);
  check_like(op, "shift", args.shift, {rates}, dtype);
  if (args.rule == StateRule::delta)
    check_like(op, "b", args.b, {tokens, heads}, wide(dtype));
  else
    check_like(op, "skip", args.skip, {heads}, dtype);
  check(args.q.dim(2) >= 1 && args.q.dim(2) <= kMostKeyDim, "{}: keys have {} elements, but {} are the most", op,
        args.q.dim(2), kMostKeyDim);
  check(args.q.dim(1) > 0 ? heads % args.q.dim(1) == 0 : heads == 0, "{}: {} heads do not share {} keys evenly", op,
        heads, args.q.dim(1));
}

}  // namespace

void check_causal_conv(const CausalConvArgs& args) {
  constexpr std::string_view kOp = "causal_conv";
  check_conv(kOp, args);
  check_like(kOp, "y", args.y, args.x.shape(), args.x.dtype());
  if (args.states)
    check_like(kOp, "states", args.states, {args.states.dim(0), args.weight.dim(1) - 1, args.x.dim(1)},
               args.x.dtype());
  check_runs(kOp, args.runs, args.x.dim(0), args.states ? args.states.dim(0) : 0);
}

void check_causal_conv_backward(const CausalConvBackwardArgs& args) {
  constexpr std::string_view kOp = "causal_conv_backward";
  check_conv(kOp, args);
  check_like(kOp, "dx", args.dx, args.x.shape(), args.x.dtype());
  check_like(kOp, "dy", args.dy, args.x.shape(), args.x.dtype());
  if (args.dweight) check_like(kOp, "dweight", args.dweight, args.weight.shape(), wide(args.x.dtype()));
  if (args.dbias) check_like(kOp, "dbias", args.dbias, {args.x.dim(1)}, wide(args.x.dtype()));
  check_runs(kOp, args.runs, args.x.dim(0), 0);
}

void check_recurrence(const RecurrenceArgs& args) {
  constexpr std::string_view kOp = "recurrence";
  check_read(kOp, args);
  const DType dtype = args.q.dtype();
  check_like(kOp, "y", args.y, args.v.shape(), dtype);
  if (args.states)
    check_like(kOp, "states", args.states, {args.states.dim(0), args.v.dim(1), args.q.dim(2), args.v.dim(2)},
               wide(dtype));
  check_runs(kOp, args.runs, args.q.dim(0), args.states ? args.states.dim(0) : 0);
}

void check_recurrence_backward(const RecurrenceBackwardArgs& args) {
  constexpr std::string_view kOp = "recurrence_backward";
  check_read(kOp, args);
  const DType dtype = args.q.dtype();
  check_like(kOp, "dy", args.dy, args.v.shape(), dtype);
  check_like(kOp, "dq", args.dq, args.q.shape(), dtype);
  check_like(kOp, "dk", args.dk, args.k.shape(), dtype);
  check_like(kOp, "dv", args.dv, args.v.shape(), dtype);
  check_like(kOp, "da", args.da, args.a.shape(), wide(dtype));
  if (args.rule == StateRule::delta) check_like(kOp, "db", args.db, args.b.shape(), wide(dtype));
  if (args.drate || args.dshift || args.dskip) {
    check_like(kOp, "drate", args.drate, args.rate.shape(), wide(dtype));
    check_like(kOp, "dshift", args.dshift, args.shift.shape(), wide(dtype));
    if (args.rule == StateRule::selective) check_like(kOp, "dskip", args.dskip, args.rate.shape(), wide(dtype));
  }
  check_runs(kOp, args.runs, args.q.dim(0), 0);
}

}  // namespace weft::shapes
