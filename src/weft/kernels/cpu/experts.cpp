// Choosing experts, and moving rows of tokens to and from them.
#include "weft/kernels/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/experts.cpp"
#include <cmath>

#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/simd_chunks.h"
#include "weft/kernels/cpu/simd_loop-inl.h"
#include "weft/kernels/shape_checks.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu::HWY_NAMESPACE {

// The k best of n in one pass, kept sorted: an expert enters behind its equals. Always k different experts, whatever
// the numbers are.
struct Best {
  float values[kMostExpertsPerToken];
  int32_t experts[kMostExpertsPerToken];
  int count = 0;

  HWY_INLINE void offer(float value, int32_t expert, int k) {
    if (count == k && !(value > values[k - 1])) return;
    int at = count < k ? count++ : k - 1;
    for (; at > 0 && value > values[at - 1]; --at) values[at] = values[at - 1], experts[at] = experts[at - 1];
    values[at] = value, experts[at] = expert;
  }
};

HWY_INLINE float logsumexp(const float* x, int64_t n, float* exponentials, float& sum) {
  const F32Tag d;
  float highest = x[0];
  for (int64_t i = 1; i < n; ++i) highest = std::max(highest, x[i]);
  sum = sum_of_lanes(sum_over(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto e = exp_nonpositive(d, hn::Sub(load(d, x + i, part), hn::Set(d, highest)));
    if (exponentials) store(e, d, exponentials + i, part);
    return only_elements(d, e, hn::Zero(d), part);
  }));
  return highest + std::log(sum);
}

HWY_INLINE void scores_of(RouterGate gate, const float* logits, int64_t n, float* scores) {
  const F32Tag d;
  if (gate == RouterGate::sigmoid) {
    for_each_vector(
        n, [&](int64_t i, auto part) HWY_ATTR { store(sigmoid(d, load(d, logits + i, part)), d, scores + i, part); });
    return;
  }
  float sum = 0;
  logsumexp(logits, n, scores, sum);
  const auto factor = hn::Set(d, 1 / sum);
  for_each_vector(n, [&](int64_t i, auto part)
                         HWY_ATTR { store(hn::Mul(load(d, scores + i, part), factor), d, scores + i, part); });
}

// Calls body(first, end) for the experts of each group that a token may choose from, in the order of experts.
template <class Rank, class Body>
HWY_INLINE void for_each_chosen_group(const RouteRule& rule, int64_t n, Rank&& rank_of, Body&& body) {
  const int64_t size = n / rule.groups;
  if (rule.groups_per_token == rule.groups) return body(int64_t(0), n);
  const auto rank_of_group = [&](int64_t group) {
    float first = -HUGE_VALF, second = -HUGE_VALF;
    for (int64_t e = group * size; e < (group + 1) * size; ++e) {
      const float rank = rank_of(e);
      if (rank > first)
        second = first, first = rank;
      else if (rank > second)
        second = rank;
    }
    return rule.gate == RouterGate::sigmoid && size > 1 ? first + second : first;
  };
  for (int64_t group = 0; group < rule.groups; ++group) {
    const float rank = rank_of_group(group);
    int better = 0;  // groups that come before this one
    for (int64_t other = 0; other < rule.groups; ++other) {
      const float theirs = other == group ? rank : rank_of_group(other);
      better += theirs > rank || (theirs == rank && other < group);
    }
    if (better < rule.groups_per_token) body(group * size, (group + 1) * size);
  }
}

void route(Stream& stream, const RouteArgs& args) {
  const int64_t n = args.logits.dim(1);
  const int k = int(args.weights.dim(1));
  const float* const logits = args.logits.data<float>();
  const float* const bias = args.bias ? args.bias.data<float>() : nullptr;
  const float* const factors = args.factors ? args.factors.data<float>() : nullptr;
  float* const all_scores = args.scores.data<float>();
  float* const weights = args.weights.data<float>();
  int32_t* const experts = args.on_host();
  stream.team().parallel_for(args.logits.dim(0), rows_per_chunk(16 * n), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* const scores = all_scores + t * n;
      scores_of(args.rule.gate, logits + t * n, n, scores);
      const float* const ranked = args.rule.ranks_logits ? logits + t * n : scores;
      const auto rank_of = [&](int64_t e) { return bias ? ranked[e] + bias[e] : ranked[e]; };
      Best best;
      if (args.are_given)
        std::copy_n(experts + t * k, k, best.experts);
      else
        for_each_chosen_group(args.rule, n, rank_of, [&](int64_t first, int64_t last) {
          for (int64_t e = first; e < last; ++e) best.offer(rank_of(e), int32_t(e), k);
        });
      float total = 0;
      for (int j = 0; j < k; ++j) total += scores[best.experts[j]];
      const float factor = args.rule.normalises ? args.rule.scale / total : args.rule.scale;
      for (int j = 0; j < k; ++j) {
        experts[t * k + j] = best.experts[j];
        weights[t * k + j] = scores[best.experts[j]] * factor;
        if (factors) weights[t * k + j] *= factors[best.experts[j]];
      }
    }
  });
}

// From the gradient of a token's weights to that of the weights without factors, in `inner`, where there are some;
// what it adds to that of the factors goes to dfactors [E], unless that is null. Gives which of the two has it.
HWY_INLINE const float* through_factors(const RouteRule& rule, const float* factors, const float* dweights,
                                        const float* scores, const int32_t* experts, int k, float* inner,
                                        float* dfactors) {
  if (!factors) return dweights;
  float total = rule.normalises ? 0.0f : 1.0f;
  for (int j = 0; rule.normalises && j < k; ++j) total += scores[experts[j]];
  for (int j = 0; j < k; ++j) {
    const int32_t e = experts[j];
    if (dfactors) dfactors[e] = dweights[j] * rule.scale * scores[e] / total;
    inner[j] = dweights[j] * factors[e];
  }
  return inner;
}

// A token's gradient of scores, from that of its weights.
HWY_INLINE void add_weight_gradient(const RouteRule& rule, const float* dweights, const float* scores,
                                    const int32_t* experts, int k, float* d) {
  if (rule.normalises && k == 1) return;  // whose weight is always the same: no rounding error is a gradient
  float total = 1, mean = 0;
  if (rule.normalises) {
    total = 0;
    for (int j = 0; j < k; ++j) total += scores[experts[j]], mean += dweights[j] * scores[experts[j]];
    mean /= total;
  }
  for (int j = 0; j < k; ++j) d[experts[j]] += rule.scale / total * (dweights[j] - mean);
}

HWY_INLINE void add_balance_gradient(const float* balance, const float* scores, int64_t n, float* dscores) {
  const F32Tag d;
  const float sum =
      sum_of_lanes(sum_over(n, [&](int64_t i, auto part) HWY_ATTR { return load(d, scores + i, part); }));
  const float mean = sum_of_lanes(sum_over(n,
                                           [&](int64_t i, auto part) HWY_ATTR {
                                             return hn::Mul(load(d, balance + i, part), load(d, scores + i, part));
                                           })) /
                     sum;
  const auto means = hn::Set(d, mean), factor = hn::Set(d, 1 / sum);
  for_each_vector(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto b = hn::Sub(load(d, balance + i, part), means);
    store(hn::MulAdd(b, factor, load(d, dscores + i, part)), d, dscores + i, part);
  });
}

HWY_INLINE void through_gate(RouterGate gate, const float* scores, int64_t n, float* gradient) {
  const F32Tag d;
  if (gate == RouterGate::sigmoid) {
    for_each_vector(n, [&](int64_t i, auto part) HWY_ATTR {
      const auto s = load(d, scores + i, part);
      store(hn::Mul(hn::NegMulAdd(s, s, s), load(d, gradient + i, part)), d, gradient + i, part);
    });
    return;
  }
  const auto mean = hn::Set(d, sum_of_lanes(sum_over(n, [&](int64_t i, auto part) HWY_ATTR {
                              return hn::Mul(load(d, gradient + i, part), load(d, scores + i, part));
                            })));
  for_each_vector(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto s = load(d, scores + i, part);
    store(hn::Mul(s, hn::Sub(load(d, gradient + i, part), mean)), d, gradient + i, part);
  });
}

void route_backward(Stream& stream, const RouteBackwardArgs& args) {
  const int64_t n = args.logits.dim(1);
  const int k = args.k;
  const float* const logits = args.logits.data<float>();
  const float* const scores = args.scores.data<float>();
  float* const dlogits = args.dlogits.data<float>();
  const float* const factors = args.factors ? args.factors.data<float>() : nullptr;
  float* const all_dfactors = args.dfactors ? args.dfactors.data<float>() : nullptr;
  stream.team().parallel_for(args.logits.dim(0), rows_per_chunk(16 * n), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* const s = scores + t * n;
      float* const gradient = dlogits + t * n;
      std::fill_n(gradient, n, 0.0f);
      if (args.dweights) {
        float inner[kMostExpertsPerToken];
        float* const dfactors = all_dfactors ? all_dfactors + t * n : nullptr;
        if (dfactors) std::fill_n(dfactors, n, 0.0f);
        const int32_t* const chosen = args.experts + t * k;
        const float* const dweights =
            through_factors(args.rule, factors, args.dweights.data<float>() + t * k, s, chosen, k, inner, dfactors);
        add_weight_gradient(args.rule, dweights, s, chosen, k, gradient);
      }
      if (args.balance) add_balance_gradient(args.balance.data<float>() + args.rows[t] * n, s, n, gradient);
      through_gate(args.rule.gate, s, n, gradient);
      if (args.z_scale == 0) continue;
      float sum = 0;
      const float lse = logsumexp(logits + t * n, n, nullptr, sum);
      const F32Tag d;
      const auto lses = hn::Set(d, lse), factor = hn::Set(d, 2 * args.z_scale * lse);
      for_each_vector(n, [&](int64_t i, auto part) HWY_ATTR {
        const auto p = exp_nonpositive(d, hn::Sub(load(d, logits + t * n + i, part), lses));
        store(hn::MulAdd(factor, p, load(d, gradient + i, part)), d, gradient + i, part);
      });
    }
  });
}

// Copies of one token that exist, as rows of x and their factors.
struct Copies {
  const void* rows[kMostExpertsPerToken];
  float factors[kMostExpertsPerToken];
  int count = 0;
};

void combine_rows(Stream& stream, const Tensor& y, const Tensor& x, const RowCopies& copies, const Tensor& weights) {
  with_dtype("combine_rows", y, [&](auto element) {
    using T = decltype(element);
    const int64_t cols = y.cols(), k = copies.k;
    const float* const factors = weights ? weights.data<float>() : nullptr;
    const T* const rows = x.data<T>();
    T* const out = y.data<T>();
    const auto body = [&](int64_t begin, int64_t end, int) {
      const F32Tag d;
      for (int64_t t = begin; t < end; ++t) {
        Copies here;
        for (int64_t j = t * k; j < (t + 1) * k; ++j) {
          if (copies.at[j] < 0) continue;
          here.rows[here.count] = rows + copies.at[j] * cols;
          here.factors[here.count++] = factors ? factors[j] : 1.0f;
        }
        for_each_vector(cols, [&](int64_t c, auto part) HWY_ATTR {
          auto sum = hn::Zero(d);
          for (int j = 0; j < here.count; ++j)
            sum =
                hn::MulAdd(hn::Set(d, here.factors[j]), load(d, static_cast<const T*>(here.rows[j]) + c, part), sum);
          store(sum, d, out + t * cols + c, part);
        });
      }
    };
    stream.team().parallel_for(y.dim(0), rows_per_chunk((k + 1) * cols * int64_t(sizeof(T))), body);
  });
}

void combine_rows_backward(Stream& stream, const Tensor& dx, const Tensor& dweights, const Tensor& dy,
                           const Tensor& x, const RowCopies& copies, const Tensor& weights) {
  with_dtype("combine_rows backward", dy, [&](auto element) {
    using T = decltype(element);
    const int64_t cols = dy.cols(), k = copies.k;
    const float* const factors = weights.data<float>();
    float* const dfactors = dweights ? dweights.data<float>() : nullptr;
    const T* const rows = x ? x.data<T>() : nullptr;
    const T* const gradients = dy.data<T>();
    T* const drows = dx ? dx.data<T>() : nullptr;
    const auto body = [&](int64_t begin, int64_t end, int) {
      const F32Tag d;
      for (int64_t i = begin * k; i < end * k; ++i) {
        if (dfactors) dfactors[i] = 0;
        if (copies.at[i] < 0) continue;
        const T* const g = gradients + i / k * cols;
        const int64_t at = copies.at[i] * cols;
        const auto factor = hn::Set(d, factors[i]);
        const float dfactor = sum_of_lanes(sum_over(cols, [&](int64_t c, auto part) HWY_ATTR {
          const auto dyc = load(d, g + c, part);
          if (drows) store(hn::Mul(dyc, factor), d, drows + at + c, part);
          return rows ? hn::Mul(dyc, load(d, rows + at + c, part)) : hn::Zero(d);
        }));
        if (dfactors) dfactors[i] = dfactor;
      }
    };
    stream.team().parallel_for(dy.dim(0), rows_per_chunk((2 * k + 1) * cols * int64_t(sizeof(T))), body);
  });
}

}  // namespace weft::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {

HWY_EXPORT(route);
HWY_EXPORT(route_backward);
HWY_EXPORT(combine_rows);
HWY_EXPORT(combine_rows_backward);

void route(Stream& stream, const RouteArgs& args) {
  shapes::check_route(args);
  HWY_DYNAMIC_DISPATCH(route)(stream, args);
}

void route_backward(Stream& stream, const RouteBackwardArgs& args) {
  shapes::check_route_backward(args);
  HWY_DYNAMIC_DISPATCH(route_backward)(stream, args);
}

void combine_rows(Stream& stream, const Tensor& y, const Tensor& x, const RowCopies& copies, const Tensor& weights) {
  shapes::check_combine_rows(y, x, copies, weights);
  check(copies.k <= kMostExpertsPerToken, "combine_rows: {} copies of a token, at most {}", copies.k,
        kMostExpertsPerToken);
  HWY_DYNAMIC_DISPATCH(combine_rows)(stream, y, x, copies, weights);
}

void combine_rows_backward(Stream& stream, const Tensor& dx, const Tensor& dweights, const Tensor& dy,
                           const Tensor& x, const RowCopies& copies, const Tensor& weights) {
  shapes::check_combine_rows_backward(dx, dweights, dy, x, copies, weights);
  HWY_DYNAMIC_DISPATCH(combine_rows_backward)(stream, dx, dweights, dy, x, copies, weights);
}

}  // namespace weft::cpu
#endif
