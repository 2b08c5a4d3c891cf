// CausalConv, GatedDelta and SelectiveState: calls of their kernels.
#include "weft/autograd/ops/recurrence.h"

namespace weft {

Tensor CausalConvOp::forward(Context& context, const Tensor& in) {
  x = in;
  Tensor y = context.empty_like(x);
  context.kernels.causal_conv(context.stream, std::array{CausalConvArgs{.y = y,
                                                                        .x = x,
                                                                        .weight = weight.value(),
                                                                        .bias = bias ? bias->value() : Tensor(),
                                                                        .states = past.states,
                                                                        .runs = past.runs,
                                                                        .f = f}});
  return y;
}

Tensor CausalConvOp::backward(Context& context, const Tensor& dy) {
  Tensor dx = context.empty_like(x);
  context.kernels.causal_conv_backward(context.stream, {.dx = dx,
                                                        .dweight = weight.gradient(context),
                                                        .dbias = bias ? bias->gradient(context) : Tensor(),
                                                        .accumulate = true,
                                                        .dy = dy,
                                                        .x = x,
                                                        .weight = weight.value(),
                                                        .bias = bias ? bias->value() : Tensor(),
                                                        .runs = past.runs,
                                                        .f = f});
  return dx;
}

Tensor RecurrenceCall::forward(Context& context, const RecurrenceArgs& given) {
  inputs = given;
  RecurrenceArgs args = inputs;
  args.y = context.empty_like(args.v);
  args.rate = rates.rate.value(), args.shift = rates.shift.value();
  if (skip) args.skip = skip->value();
  args.beta_scale = beta_scale;
  args.states = past.states, args.runs = past.runs;
  context.kernels.recurrence(context.stream, args);
  return args.y;
}

RecurrenceBackwardArgs RecurrenceCall::backward(Context& context, const Tensor& dy) {
  RecurrenceBackwardArgs args{.rule = inputs.rule,
                              .dq = context.empty_like(inputs.q),
                              .dk = context.empty_like(inputs.k),
                              .dv = context.empty_like(inputs.v),
                              .da = context.empty_like(inputs.a),
                              .db = inputs.b ? context.empty_like(inputs.b) : Tensor(),
                              .drate = rates.rate.gradient(context),
                              .dshift = rates.shift.gradient(context),
                              .dskip = skip ? skip->gradient(context) : Tensor(),
                              .dy = dy,
                              .q = inputs.q,
                              .k = inputs.k,
                              .v = inputs.v,
                              .a = inputs.a,
                              .b = inputs.b,
                              .rate = rates.rate.value(),
                              .shift = rates.shift.value(),
                              .skip = skip ? skip->value() : Tensor(),
                              .beta_scale = beta_scale,
                              .runs = past.runs};
  context.kernels.recurrence_backward(context.stream, args);
  return args;
}

Tensor GatedDeltaOp::forward(Context& context, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& a,
                             const Tensor& b) {
  return call.forward(context, {.rule = StateRule::delta, .q = q, .k = k, .v = v, .a = a, .b = b});
}

std::array<Tensor, 5> GatedDeltaOp::backward(Context& context, const Tensor& dy) {
  const RecurrenceBackwardArgs d = call.backward(context, dy);
  return {d.dq, d.dk, d.dv, d.da, d.db};
}

Tensor SelectiveStateOp::forward(Context& context, const Tensor& q, const Tensor& k, const Tensor& v,
                                 const Tensor& a) {
  return call.forward(context, {.rule = StateRule::selective, .q = q, .k = k, .v = v, .a = a});
}

std::array<Tensor, 4> SelectiveStateOp::backward(Context& context, const Tensor& dy) {
  const RecurrenceBackwardArgs d = call.backward(context, dy);
  return {d.dq, d.dk, d.dv, d.da};
}

}  // namespace weft
