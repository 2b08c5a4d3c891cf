// Choosing experts, and moving rows of tokens to and from them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {
namespace {

double logsumexp(const double* x, size_t n) {
  const double highest = *std::max_element(x, x + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(x[i] - highest);
  return highest + std::log(sum);
}

double total_of(const double* scores, const int32_t* experts, size_t k) {
  double sum = 0;
  for (size_t j = 0; j < k; ++j) sum += scores[experts[j]];
  return sum;
}

// From the gradient of a token's weights to that of the weights without factors; what it adds to that of the factors.
void through_factors(const RouteRule& rule, const std::vector<double>& factors, const double* scores,
                     const int32_t* experts, size_t k, double* dweights, double* dfactors) {
  const double total = rule.normalises ? total_of(scores, experts, k) : 1;
  for (size_t j = 0; j < k; ++j) {
    const auto e = size_t(experts[j]);
    if (dfactors) dfactors[e] = dweights[j] * double(rule.scale) * scores[e] / total;
    dweights[j] *= factors[e];
  }
}

// A token's gradient of scores, from that of its weights.
void add_weight_gradient(const RouteRule& rule, const double* dweights, const double* scores, const int32_t* experts,
                         size_t k, double* dscores) {
  if (rule.normalises && k == 1) return;  // whose weight is always the same
  const double total = rule.normalises ? total_of(scores, experts, k) : 1;
  double mean = 0;
  for (size_t j = 0; rule.normalises && j < k; ++j) mean += dweights[j] * scores[experts[j]] / total;
  for (size_t j = 0; j < k; ++j) dscores[experts[j]] += double(rule.scale) / total * (dweights[j] - mean);
}

void add_balance_gradient(const double* balance, const double* scores, size_t experts, double* dscores) {
  double sum = 0, mean = 0;
  for (size_t e = 0; e < experts; ++e) sum += scores[e], mean += balance[e] * scores[e];
  mean /= sum;
  for (size_t e = 0; e < experts; ++e) dscores[e] += (balance[e] - mean) / sum;
}

// Whether a token may choose an expert: those of the groups that rank first.
std::vector<bool> open_experts(const RouteRule& rule, size_t experts, FunctionRef<double(int32_t)> rank_of) {
  const auto groups = size_t(rule.groups), size = experts / groups;
  std::vector<double> ranks(groups);
  for (size_t g = 0; g < groups; ++g) {
    std::vector<double> of_group;
    for (size_t e = g * size; e < (g + 1) * size; ++e) of_group.push_back(rank_of(int32_t(e)));
    std::sort(of_group.begin(), of_group.end(), std::greater<>());
    ranks[g] = rule.gate == RouterGate::sigmoid && size > 1 ? of_group[0] + of_group[1] : of_group[0];
  }
  std::vector<size_t> order(groups);
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ranks[a] > ranks[b]; });
  std::vector<bool> is_open(experts, false);
  for (size_t i = 0; i < size_t(rule.groups_per_token); ++i)
    std::fill_n(is_open.begin() + std::ptrdiff_t(order[i] * size), size, true);
  return is_open;
}

// The k experts that rank first of those that a token may choose; `order` is scratch.
void choose(const RouteRule& rule, size_t experts, FunctionRef<double(int32_t)> rank_of, std::vector<int32_t>& order,
            size_t k, int32_t* chosen) {
  const std::vector<bool> is_open = open_experts(rule, experts, rank_of);
  order.resize(experts);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    if (is_open[size_t(a)] != is_open[size_t(b)]) return bool(is_open[size_t(a)]);
    return rank_of(a) > rank_of(b);
  });
  std::copy_n(order.begin(), k, chosen);
}

// In place: from the gradient of the scores to that of the logits.
void through_gate(RouterGate gate, const double* scores, size_t experts, double* d) {
  double mean = 0;
  for (size_t e = 0; gate == RouterGate::softmax && e < experts; ++e) mean += d[e] * scores[e];
  for (size_t e = 0; e < experts; ++e)
    d[e] = gate == RouterGate::softmax ? scores[e] * (d[e] - mean) : scores[e] * (1 - scores[e]) * d[e];
}

}  // namespace

void route(Stream&, const RouteArgs& args) {
  shapes::check_route(args);
  const auto tokens = size_t(args.logits.dim(0)), experts = size_t(args.logits.dim(1)),
             k = size_t(args.weights.dim(1));
  const std::vector<double> logits = load(args.logits), bias = load_or(args.bias, args.logits.dim(1), 0);
  const std::vector<double> factors = load_or(args.factors, args.logits.dim(1), 1);
  std::vector<double> scores(logits.size()), weights(tokens * k);
  std::vector<int32_t> order;
  for (size_t t = 0; t < tokens; ++t) {
    const double* x = &logits[t * experts];
    double* s = &scores[t * experts];
    const double lse = logsumexp(x, experts);
    for (size_t e = 0; e < experts; ++e)
      s[e] = args.rule.gate == RouterGate::softmax ? std::exp(x[e] - lse) : 1 / (1 + std::exp(-x[e]));
    int32_t* const chosen = args.on_host() + t * k;
    if (!args.are_given)
      choose(
          args.rule, experts, [&](int32_t e) { return (args.rule.ranks_logits ? x : s)[e] + bias[size_t(e)]; }, order,
          k, chosen);
    const double total = args.rule.normalises ? total_of(s, chosen, k) : 1;
    for (size_t j = 0; j < k; ++j)
      weights[t * k + j] = double(args.rule.scale) * s[chosen[j]] / total * factors[size_t(chosen[j])];
  }
  store(args.scores, scores);
  store(args.weights, weights);
}

void route_backward(Stream&, const RouteBackwardArgs& args) {
  shapes::check_route_backward(args);
  const auto tokens = size_t(args.logits.dim(0)), experts = size_t(args.logits.dim(1)), k = size_t(args.k);
  const std::vector<double> logits = load(args.logits), scores = load(args.scores);
  const std::vector<double> factors = load_or(args.factors, args.logits.dim(1), 1);
  std::vector<double> dweights = load_or(args.dweights, int64_t(tokens * k), 0);
  std::vector<double> dfactors(args.dfactors ? logits.size() : 0);
  const std::vector<double> balance = args.balance ? load(args.balance) : std::vector<double>();
  std::vector<double> gradient(logits.size());
  for (size_t t = 0; t < tokens; ++t) {
    const double* s = &scores[t * experts];
    double* d = &gradient[t * experts];
    through_factors(args.rule, factors, s, args.experts + t * k, k, &dweights[t * k],
                    args.dfactors ? &dfactors[t * experts] : nullptr);
    if (args.dweights) add_weight_gradient(args.rule, &dweights[t * k], s, args.experts + t * k, k, d);
    if (args.balance) add_balance_gradient(&balance[size_t(args.rows[t]) * experts], s, experts, d);
    through_gate(args.rule.gate, s, experts, d);
    if (args.z_scale == 0) continue;
    const double lse = logsumexp(&logits[t * experts], experts);
    for (size_t e = 0; e < experts; ++e)
      d[e] += 2 * double(args.z_scale) * lse * std::exp(logits[t * experts + e] - lse);
  }
  store(args.dlogits, gradient);
  if (args.dfactors) store(args.dfactors, dfactors);
}

void combine_rows(Stream&, const Tensor& y, const Tensor& x, const RowCopies& copies, const Tensor& weights) {
  shapes::check_combine_rows(y, x, copies, weights);
  const auto tokens = size_t(y.dim(0)), cols = size_t(y.dim(1)), k = size_t(copies.k);
  const std::vector<double> rows = load(x), factors = load_or(weights, int64_t(tokens * k), 1);
  std::vector<double> sums(tokens * cols);
  for (size_t i = 0; i < tokens * k; ++i)
    for (size_t c = 0; copies.at[i] >= 0 && c < cols; ++c)
      sums[i / k * cols + c] += factors[i] * rows[size_t(copies.at[i]) * cols + c];
  store(y, sums);
}

void combine_rows_backward(Stream&, const Tensor& dx, const Tensor& dweights, const Tensor& dy, const Tensor& x,
                           const RowCopies& copies, const Tensor& weights) {
  shapes::check_combine_rows_backward(dx, dweights, dy, x, copies, weights);
  const auto tokens = size_t(dy.dim(0)), cols = size_t(dy.dim(1)), k = size_t(copies.k);
  const std::vector<double> factors = load(weights), gradient = load(dy);
  const std::vector<double> rows = x ? load(x) : std::vector<double>();
  std::vector<double> drows = dx ? load(dx) : std::vector<double>(), dfactors(tokens * k);
  for (size_t i = 0; i < tokens * k; ++i)
    for (size_t c = 0; copies.at[i] >= 0 && c < cols; ++c) {
      const double g = gradient[i / k * cols + c];
      if (dx) drows[size_t(copies.at[i]) * cols + c] = factors[i] * g;
      if (x) dfactors[i] += g * rows[size_t(copies.at[i]) * cols + c];
    }
  if (dx) store(dx, drows);
  if (dweights) store(dweights, dfactors);
}

}  // namespace weft::reference
