// Attention over spans of packed sequences, with the whole row of probabilities in hand; joining of parts.
#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/selected_keys.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {
namespace {

// One query row of one head, and the keys it sees.
struct Row {
  size_t query;      // row of q
  size_t head;       // of q
  size_t kv_head;    // of k and v
  size_t key;        // the first row of k that is seen
  size_t num_keys;   // visible ones
  uint64_t dropout;  // index of the element of the first key that is seen
  int64_t distance;  // how far that key stands behind the query
};

void for_each_row(const AttentionShape& s, FunctionRef<void(const Row&)> body) {
  const int heads_per_kv_head = s.num_kv_heads ? s.num_heads / s.num_kv_heads : 1;
  const auto total_heads = uint64_t(s.total_heads ? s.total_heads : s.num_heads);
  for (int i = 0; i < s.num_spans; ++i) {
    const AttentionSpan& a = s.spans[i];
    for (int32_t q = a.q_begin; q < a.q_end; ++q)
      for (int head = 0; head < s.num_heads; ++head) {
        const uint64_t query = uint64_t(a.first_query + q - a.q_begin);
        const shapes::VisibleKeys seen = shapes::visible_keys(a, s.window, q - a.q_begin);
        body({size_t(q), size_t(head), size_t(head / heads_per_kv_head), size_t(a.k_begin + seen.begin),
              size_t(seen.count()),
              ((query * total_heads + uint64_t(s.first_head + head)) << 24) + uint64_t(a.first_key + seen.begin),
              shapes::first_distance(a, q - a.q_begin) + seen.begin});
      }
  }
}

double dot(const double* a, const double* b, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// y += factor * x
void add_scaled(double* y, double factor, const double* x, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

// Where the vectors of a row lie in q, y and their gradients, and in k, v and theirs.
struct Layout {
  size_t num_heads, num_kv_heads, head_dim, value_dim, num_queries;
  Layout(const AttentionShape& s, int64_t queries)
      : num_heads(size_t(s.num_heads)),
        num_kv_heads(size_t(s.num_kv_heads)),
        head_dim(size_t(s.head_dim)),
        value_dim(size_t(s.values_dim())),
        num_queries(size_t(queries)) {}
  size_t q(const Row& row) const { return (row.query * num_heads + row.head) * head_dim; }
  size_t y(const Row& row) const { return (row.query * num_heads + row.head) * value_dim; }
  size_t k(const Row& row, size_t j) const { return ((row.key + j) * num_kv_heads + row.kv_head) * head_dim; }
  size_t v(const Row& row, size_t j) const { return ((row.key + j) * num_kv_heads + row.kv_head) * value_dim; }
  size_t lse(const Row& row) const { return row.head * num_queries + row.query; }
};

// A score from the product of a query and a key, and how it changes with that product.
struct Score {
  double value, slope;
};
Score score_of(const AttentionShape& s, double product) {
  const double scaled = double(s.scale) * product, cap = double(s.softcap);
  if (cap == 0) return {scaled, double(s.scale)};
  const double t = std::tanh(scaled / cap);
  return {cap * t, double(s.scale) * (1 - t * t)};
}

// Where a row's bias for its key j lies, as an element of the bias.
size_t bias_at(const Tensor& bias, const Row& row, size_t j) {
  const int64_t width = bias.dim(1), reach = width / 2;
  return row.head * size_t(width) + size_t(std::clamp(row.distance + int64_t(j), -reach, reach) + reach);
}

// Whether a row sees its key j.
bool is_selected(const Tensor& bits, const Row& row, size_t j) {
  if (!bits) return true;
  const size_t key = row.key + j;
  return bits.data<int32_t>()[row.query * size_t(bits.dim(1)) + key / 32] >> (key % 32) & 1;
}

constexpr double kNothing = -std::numeric_limits<double>::infinity();  // log-sum-exp over no keys

double log_sum_exp(const std::vector<double>& scores) {
  double highest = kNothing;
  for (const double score : scores) highest = std::max(highest, score);
  if (highest == kNothing) return highest;
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - highest);
  return highest + std::log(sum);
}

}  // namespace

void attention(Stream&, const AttentionArgs& args) {
  shapes::check_attention(args);
  const Layout at(args.shape, args.q.dim(0));
  const std::vector<double> q = load(args.q), k = load(args.k), v = load(args.v);
  const std::vector<double> bias = args.bias ? load(args.bias) : std::vector<double>();
  std::vector<double> y(size_t(args.y.numel()), 0.0), lse(at.num_heads * at.num_queries, kNothing), scores;
  for_each_row(args.shape, [&](const Row& row) {
    scores.resize(row.num_keys);
    for (size_t j = 0; j < row.num_keys; ++j) {
      scores[j] = score_of(args.shape, dot(&q[at.q(row)], &k[at.k(row, j)], at.head_dim)).value +
                  (args.bias ? bias[bias_at(args.bias, row, j)] : 0);
      if (!is_selected(args.key_bits, row, j)) scores[j] = kNothing;
    }
    lse[at.lse(row)] = log_sum_exp(scores);
    for (size_t j = 0; j < row.num_keys; ++j) {
      if (scores[j] == kNothing) continue;
      const double p = std::exp(scores[j] - lse[at.lse(row)]);
      add_scaled(&y[at.y(row)], p * dropout_factor(args.dropout, row.dropout + j), &v[at.v(row, j)], at.value_dim);
    }
  });
  store(args.y, y);
  if (args.lse) store(args.lse, lse);
}

// With p = softmax(s), s = scale q k (capped) and y = (p * mask) v:  dp = mask * (dy v),  ds = p * (dp - sum_j p_j
// dp_j), and that sum is dy . y. p comes from the given lse and the sum from the given y, so that a caller who holds
// only some of the keys can pass the lse and y of all of them.
void attention_backward(Stream&, const AttentionBackwardArgs& args) {
  shapes::check_attention_backward(args);
  const Layout at(args.shape, args.q.dim(0));
  const std::vector<double> q = load(args.q), k = load(args.k), v = load(args.v);
  const std::vector<double> dy = load(args.dy), y = load(args.y), lse = load(args.lse);
  const std::vector<double> bias = args.bias ? load(args.bias) : std::vector<double>();
  std::vector<double> dbias(bias.size(), 0.0);
  std::vector<double> dq(q.size(), 0.0), dk(k.size(), 0.0), dv(v.size(), 0.0);
  for_each_row(args.shape, [&](const Row& row) {
    const size_t q_at = at.q(row), y_at = at.y(row);
    if (lse[at.lse(row)] == kNothing) return;
    const double sum_p_dp = dot(&dy[y_at], &y[y_at], at.value_dim);
    for (size_t j = 0; j < row.num_keys; ++j) {
      if (!is_selected(args.key_bits, row, j)) continue;
      const size_t k_at = at.k(row, j), v_at = at.v(row, j);
      const Score score = score_of(args.shape, dot(&q[q_at], &k[k_at], at.head_dim));
      const double added = args.bias ? bias[bias_at(args.bias, row, j)] : 0;
      const double p = std::exp(score.value + added - lse[at.lse(row)]);
      const double mask = dropout_factor(args.dropout, row.dropout + j);
      const double dscore = p * (mask * dot(&dy[y_at], &v[v_at], at.value_dim) - sum_p_dp), ds = dscore * score.slope;
      if (args.bias) dbias[bias_at(args.bias, row, j)] += dscore;
      add_scaled(&dv[v_at], p * mask, &dy[y_at], at.value_dim);
      add_scaled(&dq[q_at], ds, &k[k_at], at.head_dim);
      add_scaled(&dk[k_at], ds, &q[q_at], at.head_dim);
    }
  });
  store(args.dq, dq);
  store(args.dk, dk);
  store(args.dv, dv);
  if (args.bias) store(args.dbias, dbias);
}

void mark_keys(Stream&, const Tensor& bits, const Tensor& selected) {
  shapes::check_mark_keys(bits, selected);
  mark_keys_on_host(bits, selected, 0, bits.dim(0));
}

void attention_merge(Stream&, const Tensor& acc, const Tensor& acc_lse, const Tensor& part, const Tensor& part_lse) {
  shapes::check_attention_merge(acc, acc_lse, part, part_lse);
  const auto tokens = size_t(part.dim(0)), heads = size_t(part.dim(1)), dim = size_t(part.dim(2));
  std::vector<double> y = load(acc), lse = load(acc_lse);
  const std::vector<double> y2 = load(part), lse2 = load(part_lse);
  for (size_t head = 0; head < heads; ++head)
    for (size_t t = 0; t < tokens; ++t) {
      double& here = lse[head * tokens + t];
      const double there = lse2[head * tokens + t], all = log_sum_exp({here, there});
      if (there == kNothing) continue;
      const double keep = std::exp(here - all), take = std::exp(there - all);
      for (size_t i = (t * heads + head) * dim; i < (t * heads + head + 1) * dim; ++i)
        y[i] = keep * y[i] + take * y2[i];
      here = all;
    }
  store(acc, y);
  store(acc_lse, lse);
}

void attention_sinks(Stream&, const Tensor& y, const Tensor& lse, const Tensor& sinks) {
  shapes::check_attention_sinks("attention_sinks", y, lse, sinks);
  const auto tokens = size_t(y.dim(0)), heads = size_t(y.dim(1)), dim = size_t(y.dim(2));
  std::vector<double> values = load(y), ends = load(lse);
  const std::vector<double> scores = load(sinks);
  for (size_t head = 0; head < heads; ++head)
    for (size_t t = 0; t < tokens; ++t) {
      double& end = ends[head * tokens + t];
      const double all = log_sum_exp({end, scores[head]}), keep = std::exp(end - all);
      for (size_t i = (t * heads + head) * dim; i < (t * heads + head + 1) * dim; ++i) values[i] *= keep;
      end = all;
    }
  store(y, values);
  store(lse, ends);
}

// A sink's value is 0: of dscore = p (dp - dy . y) nothing is left but the second term.
void attention_sinks_backward(Stream&, const Tensor& dsinks, const Tensor& dy, const Tensor& y, const Tensor& lse,
                              const Tensor& sinks) {
  shapes::check_attention_sinks_backward(dsinks, dy, y, lse, sinks);
  const auto tokens = size_t(y.dim(0)), heads = size_t(y.dim(1)), dim = size_t(y.dim(2));
  const std::vector<double> values = load(y), gradients = load(dy), ends = load(lse), scores = load(sinks);
  std::vector<double> sums = load(dsinks);
  for (size_t head = 0; head < heads; ++head)
    for (size_t t = 0; t < tokens; ++t) {
      const size_t at = (t * heads + head) * dim;
      sums[head] -= std::exp(scores[head] - ends[head * tokens + t]) * dot(&gradients[at], &values[at], dim);
    }
  store(dsinks, sums);
}

}  // namespace weft::reference
