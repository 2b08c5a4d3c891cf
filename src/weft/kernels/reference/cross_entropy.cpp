// Cross entropy of a softmax, and its gradient in place of the logits.
#include <algorithm>
#include <cmath>

#include "weft/kernels/reference/reference.h"
#include "weft/kernels/shape_checks.h"

namespace weft::reference {

void cross_entropy(Stream&, const Tensor& losses, const Tensor& logits, const int32_t* targets, float dlogits_scale) {
  shapes::check_cross_entropy(losses, logits, targets);
  const auto num_tokens = size_t(logits.dim(0)), vocab = size_t(logits.dim(1));
  std::vector<double> values = load(logits), loss(num_tokens, 0.0);
  for (size_t t = 0; t < num_tokens; ++t) {
    double* row = &values[t * vocab];
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

}  // namespace weft::reference
