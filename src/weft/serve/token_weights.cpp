// TokenWeights: loops that compilers make vector instructions of.
#include "weft/serve/token_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace weft {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kLanes = 16;
constexpr float kLowest = -87;

// e^x of x <= 0: 2^n e^r, where r is at most half of log 2. Source of the polynomial: Moshier, Cephes, expf.
inline float exp_nonpositive(float x) {
  constexpr float kLog2e = 1.44269504f, kLog2High = 0.693359375f, kLog2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912;  // 1.5 * 2^23: adding it leaves a whole number in the low bits
  // By masks, since a compiler may not make one of two computations of a choice that could trap.
  const int32_t is_inside = -int32_t(x >= kLowest);
  const auto inside =
      std::bit_cast<float>((std::bit_cast<int32_t>(x) & is_inside) | (std::bit_cast<int32_t>(kLowest) & ~is_inside));
  const float shifted = inside * kLog2e + kRound, n = shifted - kRound;
  const float r = (inside - n * kLog2High) - n * kLog2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float of_rest = p * r * r + r + 1;
  const int32_t scaled = std::bit_cast<int32_t>(of_rest) + (std::bit_cast<int32_t>(shifted) << 23);
  return std::bit_cast<float>(scaled & is_inside);
}

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
  for (size_t i = 0; i < logits.size(); ++i) weights[i] = exp_nonpositive((logits[i] - top) * inverse);
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
  constexpr double kMost = 1e30;  // infinity times 0 would be no number
  const auto inverse = float(std::min(1 / temperature, kMost));
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
