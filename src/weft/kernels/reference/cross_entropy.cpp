// Cross entropy of a softmax, and its gradient in place of the logits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {

void cross_entropy(Stream&, const Tensor& losses, const Tensor& logits, const int32_t* targets, float dlogits_scale) {
  shapes::check_cross_entropy(losses, logits, targets);
  const auto num_tokens = size_t(logits.dim(0)), vocab = size_t(logits.dim(1));
  std::vector<double> values = load(logits), loss(num_tokens, 0.0);
  for (size_t t = 0; t < num_tokens; ++t) {
    double* row = values.data() + t * vocab;
    if (targets[t] < 0) {
      std::fill_n(row, vocab, 0.0);
      continue;
    }
    const double highest = *std::max_element(row, row + vocab);
    double sum = 0;
    for (size_t i = 0; i < vocab; ++i) sum += std::exp(row[i] - highest);
    const double log_sum = highest + std::log(sum);
    loss[t] = log_sum - row[targets[t]];
    for (size_t i = 0; i < vocab; ++i) {
      const double one_hot = i == size_t(targets[t]) ? 1 : 0;
      row[i] = (std::exp(row[i] - log_sum) - one_hot) * double(dlogits_scale);
    }
  }
  store(losses, loss);
  if (dlogits_scale != 0) store(logits, values);
}

void cross_entropy_stats(Stream&, const Tensor& stats, const Tensor& logits, const int32_t* targets,
                         int64_t first_column) {
  shapes::check_cross_entropy_stats(stats, logits, targets, first_column);
  const auto num_tokens = size_t(logits.dim(0)), cols = size_t(logits.dim(1));
  const std::vector<double> values = load(logits);
  std::vector<double> result(num_tokens * 3);
  for (size_t t = 0; t < num_tokens; ++t) {
    const double* row = values.data() + t * cols;
    double highest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (size_t i = 0; i < cols; ++i) highest = std::max(highest, row[i]);
    // Logits of -inf add nothing, also where there are no others.
    for (size_t i = 0; i < cols; ++i) sum += std::isinf(row[i]) && row[i] < 0 ? 0 : std::exp(row[i] - highest);
    const int64_t target = targets[t] - first_column;
    result[3 * t] = highest;
    result[3 * t + 1] = sum;
    result[3 * t + 2] = target >= 0 && target < int64_t(cols) ? row[target] : 0;
  }
  store(stats, result);
}

void cross_entropy_combine(Stream&, const Tensor& losses, const Tensor& lse, const Tensor& stats,
                           const int32_t* targets) {
  shapes::check_cross_entropy_combine(losses, lse, stats);
  const auto parts = size_t(stats.dim(0)), num_tokens = size_t(stats.dim(1));
  const std::vector<double> values = load(stats);
  std::vector<double> loss(num_tokens), log_sum(num_tokens);
  for (size_t t = 0; t < num_tokens; ++t) {
    const auto stat = [&](size_t part, size_t i) { return values[(part * num_tokens + t) * 3 + i]; };
    double top = -std::numeric_limits<double>::infinity(), sum = 0, target = 0;
    for (size_t p = 0; p < parts; ++p) top = std::max(top, stat(p, 0));
    for (size_t p = 0; p < parts; ++p)
      if (stat(p, 1) > 0) sum += stat(p, 1) * std::exp(stat(p, 0) - top);
    for (size_t p = 0; p < parts; ++p) target += stat(p, 2);
    log_sum[t] = top + std::log(sum);
    loss[t] = targets[t] < 0 ? 0 : log_sum[t] - target;
  }
  store(losses, loss);
  store(lse, log_sum);
}

void cross_entropy_gradient(Stream&, const Tensor& logits, const Tensor& lse, const Tensor& factors,
                            const int32_t* targets, int64_t first_column, float dlogits_scale) {
  shapes::check_cross_entropy_gradient(logits, lse, factors, targets, first_column);
  const auto num_tokens = size_t(logits.dim(0)), cols = size_t(logits.dim(1));
  std::vector<double> values = load(logits);
  const std::vector<double> log_sums = load(lse);
  const std::vector<double> of_rows = factors ? load(factors) : std::vector<double>(num_tokens, 1);
  for (size_t t = 0; t < num_tokens; ++t) {
    double* row = values.data() + t * cols;
    for (size_t i = 0; i < cols; ++i) {
      const double one_hot = int64_t(i) == targets[t] - first_column ? 1 : 0;
      row[i] = targets[t] < 0 ? 0 : (std::exp(row[i] - log_sums[t]) - one_hot) * of_rows[t] * double(dlogits_scale);
    }
  }
  store(logits, values);
}

}  // namespace weft::reference
