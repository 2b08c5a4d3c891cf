// DistanceAttention: projections around the kernel, and the table of distances.
#include "weft/nn/distance_attention.h"

#include <cmath>

#include "weft/autograd/ops/reshape.h"
#include "weft/tensor/host_access.h"

namespace weft {
namespace {

LinearConfig inwards(const DistanceAttentionConfig& c, const Cut& heads) {
  return {
      .in = c.hidden, .out = c.heads * c.head_dim, .init_std = c.init_std, .out_cut = elements_of(heads, c.head_dim)};
}
LinearConfig outwards(const DistanceAttentionConfig& c, const Cut& heads) {
  return {
      .in = c.heads * c.head_dim, .out = c.hidden, .init_std = c.init_std, .in_cut = elements_of(heads, c.head_dim)};
}

}  // namespace

DistanceAttention::DistanceAttention(const std::string& name, const DistanceAttentionConfig& c,
                                     const Partition& partition)
    : config_(c),
      tensor_(partition.tensor),
      heads_(tensor_.cut(c.heads)),
      query_(name + ".query", inwards(c, heads_)),
      key_(name + ".key", inwards(c, heads_)),
      value_(name + ".value", inwards(c, heads_)),
      output_(name + ".output", outwards(c, heads_)) {}

DistanceAttention::KeysValues DistanceAttention::read(const Var& memory) {
  const Shape shape{memory.value.dim(0), heads_.count, config_.head_dim};
  return {key_(memory).value.reshape(shape), value_(memory).value.reshape(shape)};
}

Var DistanceAttention::operator()(const Var& x, const KeysValues& memory, std::span<const AttentionSpan> spans,
                                  const Tensor& bias) {
  Context& context = *x.context;
  check(!context.tape, "attention by distance runs forward only");
  const int64_t rows = x.value.dim(0);
  const Tensor q = query_(x).value.reshape({rows, heads_.count, config_.head_dim});
  const Tensor &k = memory.keys, &v = memory.values, y = context.empty_like(q);
  const AttentionRule unscaled{.scale = 1};
  context.kernels.attention(
      context.stream,
      {.y = y, .q = q, .k = k, .v = v, .shape = unscaled.shape(context, q, k, v, spans), .bias = bias});
  return tensor_.leave(output_(Var{y.reshape({rows, heads_.count * config_.head_dim}), &context}));
}

int64_t DistanceBuckets::bucket_of(int64_t distance) const {
  const int64_t here = is_two_sided ? buckets / 2 : buckets;
  const int64_t side = is_two_sided && distance > 0 ? here : 0;
  const int64_t far = is_two_sided ? std::abs(distance) : std::max<int64_t>(-distance, 0);
  const int64_t exact = here / 2;
  if (far < exact) return side + far;
  const double share = std::log(double(far) / double(exact)) / std::log(double(max_distance) / double(exact));
  return side + std::min(exact + int64_t(share * double(here - exact)), here - 1);
}

Tensor spread_buckets(Context& context, const DistanceBuckets& buckets, const Tensor& values) {
  const int64_t heads = values.dim(1), reach = buckets.max_distance, width = 2 * reach + 1;
  const DType wide = Context::wide(values.dtype());
  const Tensor given = context.empty(wide, values.shape());
  Tensor spread = context.empty(wide, {heads, width});
  context.kernels.convert(context.stream, given, values);
  const Tensor source = on_host(context.stream, given);
  fill_on_host(context.stream, spread, [&](const Tensor& host) {
    const auto fill = [&](auto element) {
      using T = decltype(element);
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = -reach; d <= reach; ++d)
          host.data<T>()[h * width + d + reach] = source.data<T>()[buckets.bucket_of(d) * heads + h];
    };
    wide == DType::f64 ? fill(double()) : fill(float());
  });
  return spread;
}

}  // namespace weft
