// Gate: the router's products, the choice, and the gradients of the losses that balance it.
#include "weft/parallel/expert/gate.h"

#include <algorithm>

#include "weft/tensor/host_access.h"

namespace weft {

namespace {

// Calls body(element) for f32 or f64.
void with_wide(DType dtype, auto&& body) { dtype == DType::f64 ? body(double()) : body(float()); }

}  // namespace

void RouterBias::allocate(Context& context, DType dtype) {
  bias.value = context.empty(Context::wide(dtype), bias.shape);
  context.kernels.fill(context.stream, bias.value, 0);
}

void RouterBias::update(Stream& stream, std::span<const int64_t> all_chosen, double rate) {
  int64_t total = 0;
  for (const int64_t n : all_chosen) total += n;
  const auto experts = int64_t(all_chosen.size());
  change_on_host(stream, bias.value, [&](const Tensor& host) {
    with_wide(host.dtype(), [&](auto element) {
      auto* const b = host.data<decltype(element)>();
      for (int64_t e = 0; e < experts; ++e) {
        const int64_t over = all_chosen[size_t(e)] * experts - total;
        if (over != 0) b[e] += decltype(element)(over > 0 ? -rate : rate);
      }
    });
  });
}

void ExpertUse::clear() {
  std::fill(chosen.begin(), chosen.end(), 0);
  most_load = 0;
}

Tensor GateOp::forward(Context& context, const Tensor& x) {
  logits = x;
  scores = context.empty_like(x);
  Tensor weights = context.empty(x.dtype(), {x.dim(0), config.per_token});
  if (factors) {
    wide_factors = context.empty(x.dtype(), factors->shape);
    context.kernels.convert(context.stream, wide_factors, factors->value);
  }
  const Tensor chosen = stays_on_device ? context.empty(DType::i32, weights.shape()) : Tensor();
  choose(context, {.scores = scores,
                   .weights = weights,
                   .experts = route->experts(),
                   .chosen = chosen,
                   .logits = logits,
                   .bias = bias ? bias->bias.value : Tensor{},
                   .factors = wide_factors,
                   .rule = config.rule});
  if (stays_on_device) {
    // Few copies hardly share an expert, whose weights each of them then reads by itself.
    const bool are_few = x.dim(0) == 1 || 8 * weights.numel() <= config.experts;
    if (are_few && !context.tape) return route->keep_on_device(chosen), weights;
    route->order_on_device(context, chosen);
    if (context.tape) route->fetch(context);
    return weights;
  }
  if (config.capacity_factor > 0) route->drop_beyond(context, double(config.capacity_factor), rows);
  x.device() == Device::meta ? route->assign_evenly() : route->assign();
  route->exchange(context, experts);
  if (use && experts && weights.numel() > 0)
    use->most_load = std::max(use->most_load, double(route->num_here()) / double(weights.numel()));
  return weights;
}

void GateOp::choose(Context& context, RouteArgs args) {
  context.kernels.route(context.stream, args);
  if (!replay) return;
  if (!replay->is_replaying()) return replay->record(replayed, args.experts);
  replay->replay(replayed, args.experts);
  args.are_given = true;
  context.kernels.route(context.stream, args);
}

Tensor GateOp::backward(Context& context, const Tensor& dweights) {
  if (use) route->add_choices(use->chosen);
  const bool balances = config.balance_loss != 0 && loss_scale != 0;
  Tensor dlogits = context.empty_like(logits);
  const bool trains_factors = factors && factors->trainable && dweights;
  const Tensor dfactors = trains_factors ? context.empty_like(logits) : Tensor();
  context.kernels.route_backward(context.stream, {.dlogits = dlogits,
                                                  .dweights = dweights,
                                                  .logits = logits,
                                                  .scores = scores,
                                                  .experts = route->experts(),
                                                  .k = int(config.per_token),
                                                  .balance = balances ? balance_gradient(context) : Tensor{},
                                                  .rows = route->rows(),
                                                  .z_scale = config.z_loss * loss_scale,
                                                  .rule = config.rule,
                                                  .factors = wide_factors,
                                                  .dfactors = dfactors});
  if (trains_factors) context.kernels.sum_rows(context.stream, factors->grad, dfactors, factors->accumulate_next());
  return dlogits;
}

// [rows, E]: what one more share of scores costs.
Tensor GateOp::balance_gradient(Context& context) const {
  const int64_t num_rows = route->num_rows();
  const Tensor gradient = context.empty(logits.dtype(), {num_rows, config.experts});
  context.kernels.fill(context.stream, gradient, 0);
  if (gradient.device() == Device::meta) {
    if (rows) rows->all_reduce(gradient);
    return gradient;
  }
  change_on_host(context.stream, gradient, [&](const Tensor& host) {
    with_wide(host.dtype(), [&](auto element) {
      auto* const counts = host.data<decltype(element)>();
      route->each_choice([&](int32_t row, int32_t expert) { ++counts[row * config.experts + expert]; });
      if (rows) rows->all_reduce(host);
      for (int64_t r = 0; r < num_rows; ++r) {
        auto* const row = counts + r * config.experts;
        double total = 0;
        for (int64_t e = 0; e < config.experts; ++e) total += double(row[e]);
        const double factor = double(config.balance_loss) * double(loss_scale) * double(config.experts) / total;
        for (int64_t e = 0; e < config.experts; ++e) row[e] = decltype(element)(double(row[e]) * factor);
      }
    });
  });
  return gradient;
}

}  // namespace weft
