// Dispatch and combine: an all_to_all between two permutations of rows.
#include "weft/parallel/expert/dispatch.h"

#include "weft/parallel/gradient_or_zeros.h"

namespace weft {
namespace {

// y[i] = x[rows[i]]
Tensor take_rows(Context& context, const Tensor& x, const TableRows& rows, int64_t count) {
  Tensor y = context.empty(x.dtype(), {count, x.dim(1)});
  context.kernels.embedding(context.stream, y, x, rows, {}, nullptr);
  return y;
}

// From the order in which rows leave their tokens' rank to that of the experts here.
Tensor to_experts(Context& context, Communicator* group, const Route& route, const Tensor& leaving) {
  if (!group) return leaving;
  const Tensor arrived = context.empty(leaving.dtype(), {route.num_here(), leaving.dim(1)});
  group->all_to_all(arrived, route.received(), leaving, route.sent());
  return take_rows(context, arrived, route.arrived().data(), route.num_here());
}

Tensor to_tokens(Context& context, Communicator* group, const Route& route, const Tensor& here) {
  if (!group) return here;
  const Tensor returning = take_rows(context, here, route.places().data(), route.num_here());
  Tensor returned = context.empty(here.dtype(), {route.num_leaving(), here.dim(1)});
  group->all_to_all(returned, route.sent(), returning, route.received());
  return returned;
}

}  // namespace

Tensor DispatchOp::forward(Context& context, const Tensor& x, const Tensor& w) {
  shape = x.shape(), dtype = x.dtype();
  if (!w) return to_experts(context, group, *route, take_rows(context, x, route->tokens(), route->num_leaving()));
  weights = w, weighed = x;
  const Tensor leaving = context.empty(dtype, {route->num_leaving(), shape[1]});
  context.kernels.combine_rows_backward(context.stream, leaving, {}, x, {}, route->copies(), weights);
  return to_experts(context, group, *route, leaving);
}

std::array<Tensor, 2> DispatchOp::backward(Context& context, const Tensor& dy) {
  const Tensor given = gradient_or_zeros(context, dy, dtype, {route->num_here(), shape[1]});
  const Tensor rows = to_tokens(context, group, *route, given);
  Tensor dx = context.empty(dtype, shape);
  context.kernels.combine_rows(context.stream, dx, rows, route->copies(), weights);
  if (!weights) return {dx, Tensor()};
  Tensor dweights = context.empty_like(weights);
  context.kernels.combine_rows_backward(context.stream, {}, dweights, weighed, rows, route->copies(), weights);
  return {dx, dweights};
}

Tensor CombineOp::forward(Context& context, const Tensor& rows, const Tensor& w) {
  weights = w;
  returned = to_tokens(context, group, *route, rows);
  Tensor y = context.empty(rows.dtype(), {route->num_tokens(), rows.dim(1)});
  context.kernels.combine_rows(context.stream, y, returned, route->copies(), weights);
  return y;
}

std::array<Tensor, 2> CombineOp::backward(Context& context, const Tensor& dy) {
  route->settle(context);
  const Tensor given = gradient_or_zeros(context, dy, returned.dtype(), {route->num_tokens(), returned.dim(1)});
  if (!weights)
    return {to_experts(context, group, *route, take_rows(context, given, route->tokens(), route->num_leaving())),
            Tensor()};
  const Tensor dreturned = context.empty_like(returned);
  Tensor dweights = context.empty_like(weights);
  context.kernels.combine_rows_backward(context.stream, dreturned, dweights, given, returned, route->copies(),
                                        weights);
  return {to_experts(context, group, *route, dreturned), std::move(dweights)};
}

}  // namespace weft
