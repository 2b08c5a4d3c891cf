// TokenWeights: loops that compilers make vector instructions of.
#include "weft/kernels/token_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "weft/kernels/token_weight.h"

namespace weft {
namespace {

using token_weighing::exp_nonpositive;
constexpr size_t kBlock = token_weighing::kBlock, kLanes = token_weighing::kLanes;

// In double, by lanes, so that the order is the same whatever the width of vectors.
double sum_of(std::span<const float> values) {
  std::array<double, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += double(values[i + lane]);
  for (; i < values.size(); ++i) sums[i % kLanes] += double(values[i]);
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

void weigh_block(std::span<const float> logits, float top, float inverse, float* weights) {
  for (size_t i = 0; i < logits.size(); ++i) {
    const int32_t is_top = -int32_t(logits[i] == top);  // infinity less infinity would be no number
    weights[i] =
        exp_nonpositive(std::bit_cast<float>(std::bit_cast<int32_t>((logits[i] - top) * inverse) & ~is_top));
  }
}

template <class Visit>
void each_block(size_t count, Visit&& visit) {
  for (size_t begin = 0; begin < count; begin += kBlock) visit(begin, std::min(kBlock, count - begin));
}

}  // namespace

float highest(std::span<const float> logits) {
  std::array<float, kLanes> best;
  best.fill(-std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      best[lane] = logits[i + lane] > best[lane] ? logits[i + lane] : best[lane];
  for (; i < logits.size(); ++i) best[0] = logits[i] > best[0] ? logits[i] : best[0];
  return *std::ranges::max_element(best);
}

double log_sum_exp(std::span<const float> logits) {
  const float top = highest(logits);
  std::array<float, kBlock> weights;
  double sum = 0;
  each_block(logits.size(), [&](size_t begin, size_t count) {
    weigh_block(logits.subspan(begin, count), top, 1, weights.data());
    sum += sum_of(std::span(weights).first(count));
  });
  return double(top) + std::log(sum);
}

double TokenWeights::weigh(std::span<const float> logits, float top, double temperature) {
  return weigh_times(logits, top, token_weighing::inverse_of(temperature));
}

double TokenWeights::weigh_times(std::span<const float> logits, float top, float inverse) {
  weights_.resize(logits.size());
  sums_.clear();
  double all = 0;
  each_block(logits.size(), [&](size_t begin, size_t count) {
    weigh_block(logits.subspan(begin, count), top, inverse, weights_.data() + begin);
    sums_.push_back(sum_of(std::span(weights_).subspan(begin, count)));
    all += sums_.back();
  });
  return all;
}

int32_t TokenWeights::at(double target) const {
  size_t block = 0;
  while (block + 1 < sums_.size() && target >= sums_[block]) target -= sums_[block++];
  for (size_t i = block * kBlock; i < weights_.size(); ++i) {
    target -= double(weights_[i]);
    if (target < 0 && weights_[i] > 0) return int32_t(i);
  }
  const auto last = std::find_if(weights_.rbegin(), weights_.rend(), [](float w) { return w > 0; });
  return last == weights_.rend() ? 0 : int32_t(weights_.rend() - last) - 1;
}

}  // namespace weft
