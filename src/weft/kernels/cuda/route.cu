// Choosing experts: a warp to each token, the next best expert in every round.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

struct Ranked {
  float rank;
  int expert;  // -1: none

  // The first of equals comes first; NaN comes never.
  __device__ bool is_before(const Ranked& other) const {
    return rank > other.rank || (rank == other.rank && expert < other.expert);
  }
};

// The best of a row's entries [begin, end) that come after `last`, for all lanes.
__device__ Ranked next_best(const float* ranks, int begin, int end, const Ranked& last, int lane) {
  Ranked best{0, -1};
  for (int e = begin + lane; e < end; e += kWarp) {
    const Ranked here{ranks[e], e};
    if (last.is_before(here) && (best.expert < 0 || here.is_before(best))) best = here;
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const Ranked other{__shfl_xor_sync(kAllLanes, best.rank, mask), __shfl_xor_sync(kAllLanes, best.expert, mask)};
    if (other.expert >= 0 && (best.expert < 0 || other.is_before(best))) best = other;
  }
  return best;
}

__device__ float log_sum_exp(const float* x, int n, int lane) {
  float top = -INFINITY, sum = 0;
  for (int e = lane; e < n; e += kWarp) top = fmaxf(top, x[e]);
  top = warp_max(top);
  for (int e = lane; e < n; e += kWarp) sum += expf(x[e] - top);
  return top + logf(warp_sum(sum));
}

// Where logits are no numbers, a token still gets experts that differ.
__device__ float or_lowest(float rank) { return rank == rank ? rank : -INFINITY; }

struct Route {
  float *scores, *weights;
  int32_t* chosen;
  const float *logits, *bias, *factors;
  float *ranks, *group_ranks;  // scratch: [T, E] and [T, groups]
  RouteRule rule;
  int64_t tokens;
  int experts, k;
  const int32_t* given;  // in place of a choice, or null
};

// Experts of groups that a token may not choose from get the rank NaN.
__device__ void close_groups(const Route& a, float* ranks, float* group_ranks, int lane) {
  const int size = a.experts / a.rule.groups;
  const Ranked first{INFINITY, -1};
  for (int g = 0; g < a.rule.groups; ++g) {
    const Ranked best = next_best(ranks, g * size, (g + 1) * size, first, lane);
    float rank = best.rank;
    if (a.rule.gate == RouterGate::sigmoid && size > 1)
      rank += next_best(ranks, g * size, (g + 1) * size, best, lane).rank;
    if (lane == 0) group_ranks[g] = or_lowest(rank);
  }
  __syncwarp();
  for (int g = 0; g < a.rule.groups; ++g) {
    const Ranked here{group_ranks[g], g};
    int before = 0;
    for (int other = lane; other < a.rule.groups; other += kWarp)
      before += Ranked{group_ranks[other], other}.is_before(here);
    if (warp_sum(before) < a.rule.groups_per_token) continue;
    for (int e = g * size + lane; e < (g + 1) * size; e += kWarp) ranks[e] = NAN;
  }
  __syncwarp();
}

__global__ void route_kernel(const Route a) {
  const Worker<true> worker;
  const int64_t t = worker.index;
  const int lane = int(worker.rank);
  if (t >= a.tokens) return;
  const float* const logits = a.logits + t * a.experts;
  float *const scores = a.scores + t * a.experts, *const ranks = a.ranks + t * a.experts;
  float* const weights = a.weights + t * a.k;
  const bool is_softmax = a.rule.gate == RouterGate::softmax;
  const float lse = is_softmax ? log_sum_exp(logits, a.experts, lane) : 0;
  for (int e = lane; e < a.experts; e += kWarp) {
    scores[e] = is_softmax ? expf(logits[e] - lse) : 1 / (1 + expf(-logits[e]));
    ranks[e] = or_lowest((a.rule.ranks_logits ? logits[e] : scores[e]) + (a.bias ? a.bias[e] : 0));
  }
  __syncwarp();
  if (a.rule.groups > 1 && !a.given) close_groups(a, ranks, a.group_ranks + t * a.rule.groups, lane);
  Ranked last{INFINITY, -1};
  float total = 0;
  for (int j = 0; j < a.k; ++j) {
    last = a.given ? Ranked{0, a.given[t * a.k + j]} : next_best(ranks, 0, a.experts, last, lane);
    const float score = scores[last.expert];
    total += score;
    if (lane == 0) a.chosen[t * a.k + j] = last.expert, weights[j] = score;
  }
  __syncwarp();
  const float factor = a.rule.scale / (a.rule.normalises ? total : 1);
  for (int j = lane; j < a.k; j += kWarp)
    weights[j] *= a.factors ? factor * a.factors[a.chosen[t * a.k + j]] : factor;
}

struct RouteBackward {
  float *dlogits, *dfactors;
  const float *dweights, *logits, *scores, *balance, *factors;
  const int32_t *chosen, *rows;
  int64_t tokens;
  int experts, k;
  float z_scale;
  RouteRule rule;
};

__device__ void add_weight_gradient(const RouteBackward& a, int64_t t, const float* scores, float* d, int lane) {
  if (a.rule.normalises && a.k == 1) return;  // whose weight is always the same: no rounding error is a gradient
  const float* const dweights = a.dweights + t * a.k;
  const int32_t* const chosen = a.chosen + t * a.k;
  const auto inner = [&](int j) { return a.factors ? dweights[j] * a.factors[chosen[j]] : dweights[j]; };
  float total = 1, mean = 0;
  if (a.rule.normalises) {
    float sum = 0, products = 0;
    for (int j = lane; j < a.k; j += kWarp) sum += scores[chosen[j]], products += inner(j) * scores[chosen[j]];
    total = warp_sum(sum);
    mean = warp_sum(products) / total;
  }
  // A token's experts differ.
  for (int j = lane; j < a.k; j += kWarp) d[chosen[j]] += a.rule.scale / total * (inner(j) - mean);
  __syncwarp();
}

// What a token adds to the gradient of the experts' factors.
__device__ void write_factor_gradient(const RouteBackward& a, int64_t t, const float* scores, int lane) {
  const float* const dweights = a.dweights + t * a.k;
  const int32_t* const chosen = a.chosen + t * a.k;
  float* const d = a.dfactors + t * a.experts;
  for (int e = lane; e < a.experts; e += kWarp) d[e] = 0;
  float sum = 0;
  for (int j = lane; a.rule.normalises && j < a.k; j += kWarp) sum += scores[chosen[j]];
  const float total = a.rule.normalises ? warp_sum(sum) : 1;
  __syncwarp();
  for (int j = lane; j < a.k; j += kWarp) d[chosen[j]] = dweights[j] * a.rule.scale * scores[chosen[j]] / total;
}

__device__ void add_balance_gradient(const float* balance, const float* scores, int experts, float* d, int lane) {
  float sum = 0, products = 0;
  for (int e = lane; e < experts; e += kWarp) sum += scores[e], products += balance[e] * scores[e];
  sum = warp_sum(sum);
  const float mean = warp_sum(products) / sum;
  for (int e = lane; e < experts; e += kWarp) d[e] += (balance[e] - mean) / sum;
}

__global__ void route_backward_kernel(const RouteBackward a) {
  const Worker<true> worker;
  const int64_t t = worker.index;
  const int lane = int(worker.rank);
  if (t >= a.tokens) return;
  const float *const logits = a.logits + t * a.experts, *const scores = a.scores + t * a.experts;
  float* const d = a.dlogits + t * a.experts;
  for (int e = lane; e < a.experts; e += kWarp) d[e] = 0;
  __syncwarp();
  if (a.dweights) add_weight_gradient(a, t, scores, d, lane);
  if (a.dfactors) write_factor_gradient(a, t, scores, lane);
  if (a.balance) add_balance_gradient(a.balance + int64_t(a.rows[t]) * a.experts, scores, a.experts, d, lane);
  const bool is_softmax = a.rule.gate == RouterGate::softmax;
  float mean = 0;
  for (int e = lane; is_softmax && e < a.experts; e += kWarp) mean += d[e] * scores[e];
  mean = warp_sum(mean);
  const float lse = a.z_scale == 0 ? 0 : log_sum_exp(logits, a.experts, lane);
  for (int e = lane; e < a.experts; e += kWarp) {
    const float through = is_softmax ? scores[e] * (d[e] - mean) : scores[e] * (1 - scores[e]) * d[e];
    d[e] = a.z_scale == 0 ? through : through + 2 * a.z_scale * lse * expf(logits[e] - lse);
  }
}

}  // namespace

void route(Stream& stream, const RouteArgs& args) {
  shapes::check_route(args);
  const int64_t tokens = args.logits.dim(0), experts = args.logits.dim(1), k = args.weights.dim(1);
  if (tokens == 0) return;
  const Tensor chosen = args.chosen ? args.chosen : stream.allocator().empty(DType::i32, Shape{tokens, k});
  const Tensor ranks = stream.allocator().empty(DType::f32, Shape{tokens, experts});
  const Tensor group_ranks = stream.allocator().empty(DType::f32, Shape{tokens, args.rule.groups});
  const Route a{.scores = device_data<float>(args.scores),
                .weights = device_data<float>(args.weights),
                .chosen = device_data<int32_t>(chosen),
                .logits = device_data<float>(args.logits),
                .bias = device_data<float>(args.bias),
                .factors = device_data<float>(args.factors),
                .ranks = device_data<float>(ranks),
                .group_ranks = device_data<float>(group_ranks),
                .rule = args.rule,
                .tokens = tokens,
                .experts = int(experts),
                .k = int(k),
                .given = upload(stream, args.are_given ? args.experts : nullptr, tokens * k)};
  launch(stream, route_kernel, over_long_rows(tokens, 1).launch, a);
  if (!args.chosen && !args.are_given) stream.queue().copy_to_host(args.experts, a.chosen, chosen.bytes());
}

void route_backward(Stream& stream, const RouteBackwardArgs& args) {
  shapes::check_route_backward(args);
  const int64_t tokens = args.logits.dim(0);
  if (tokens == 0) return;
  const RouteBackward a{.dlogits = device_data<float>(args.dlogits),
                        .dfactors = device_data<float>(args.dfactors),
                        .dweights = device_data<float>(args.dweights),
                        .logits = device_data<float>(args.logits),
                        .scores = device_data<float>(args.scores),
                        .balance = device_data<float>(args.balance),
                        .factors = device_data<float>(args.factors),
                        .chosen = upload(stream, args.experts, tokens * args.k),
                        .rows = upload(stream, args.balance ? args.rows : nullptr, tokens),
                        .tokens = tokens,
                        .experts = int(args.logits.dim(1)),
                        .k = args.k,
                        .z_scale = args.z_scale,
                        .rule = args.rule};
  launch(stream, route_backward_kernel, over_long_rows(tokens, 1).launch, a);
}

}  // namespace weft::cuda
