// TokenWeights: how likely tokens are beside the most likely one, of a whole vocabulary at once.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// The largest of logits; -infinity where there is none that is a number.
float highest(std::span<const float> logits);

// The log of the sum of their exponentials, within some 1e-7.
double log_sum_exp(std::span<const float> logits);

// Keeps its memory for the next logits.
class TokenWeights {
 public:
  // weights[i] = exp((logits[i] - top) / temperature), within 2e-7 of that of the exponent as a float, and 0 below
  // e^-87 and of what is no number. Returns their sum. The same bits on every machine.
  double weigh(std::span<const float> logits, float top, double temperature);
  double weigh_times(std::span<const float> logits, float top, float inverse_temperature);
  std::span<const float> values() const { return weights_; }
  // The first token at which the sum of weights from the first one on is above `target`; the last that has a weight
  // where rounding leaves none.
  int32_t at(double target) const;

 private:
  std::vector<float> weights_;
  std::vector<double> sums_;  // of each block
};

}  // namespace weft
