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
                                                                        .runs = past.runs}});
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
                                                        .runs = past.runs});
  return dx;
}

Tensor GatedDeltaOp::forward(Context& context, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                             const Tensor& a_in, const Tensor& b_in) {
  q = q_in, k = k_in, v = v_in, a = a_in, b = b_in;
  Tensor y = context.empty_like(v);
  context.kernels.recurrence(context.stream, {.y = y,
                                              .q = q,
                                              .k = k,
                                              .v = v,
                                              .a = a,
                                              .b = b,
                                              .rate = rates.rate.value(),
                                              .shift = rates.shift.value(),
                                              .states = past.states,
                                              .runs = past.runs});
  return y;
}

std::array<Tensor, 5> GatedDeltaOp::backward(Context& context, const Tensor& dy) {
  std::array<Tensor, 5> d{context.empty_like(q), context.empty_like(k), context.empty_like(v), context.empty_like(a),
                          context.empty_like(b)};
  context.kernels.recurrence_backward(context.stream, {.dq = d[0],
                                                       .dk = d[1],
                                                       .dv = d[2],
                                                       .da = d[3],
                                                       .db = d[4],
                                                       .drate = rates.rate.gradient(context),
                                                       .dshift = rates.shift.gradient(context),
                                                       .dy = dy,
                                                       .q = q,
                                                       .k = k,
                                                       .v = v,
                                                       .a = a,
                                                       .b = b,
                                                       .rate = rates.rate.value(),
                                                       .shift = rates.shift.value(),
                                                       .runs = past.runs});
  return d;
}

Tensor SelectiveStateOp::forward(Context& context, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                                 const Tensor& a_in) {
  q = q_in, k = k_in, v = v_in, a = a_in;
  Tensor y = context.empty_like(v);
  context.kernels.recurrence(context.stream, {.rule = StateRule::selective,
                                              .y = y,
                                              .q = q,
                                              .k = k,
                                              .v = v,
                                              .a = a,
                                              .rate = rates.rate.value(),
                                              .shift = rates.shift.value(),
                                              .skip = skip.value(),
                                              .states = past.states,
                                              .runs = past.runs});
  return y;
}

std::array<Tensor, 4> SelectiveStateOp::backward(Context& context, const Tensor& dy) {
  std::array<Tensor, 4> d{context.empty_like(q), context.empty_like(k), context.empty_like(v), context.empty_like(a)};
  context.kernels.recurrence_backward(context.stream, {.rule = StateRule::selective,
                                                       .dq = d[0],
                                                       .dk = d[1],
                                                       .dv = d[2],
                                                       .da = d[3],
                                                       .drate = rates.rate.gradient(context),
                                                       .dshift = rates.shift.gradient(context),
                                                       .dskip = skip.gradient(context),
                                                       .dy = dy,
                                                       .q = q,
                                                       .k = k,
                                                       .v = v,
                                                       .a = a,
                                                       .rate = rates.rate.value(),
                                                       .shift = rates.shift.value(),
                                                       .skip = skip.value(),
                                                       .runs = past.runs});
  return d;
}

}  // namespace weft
