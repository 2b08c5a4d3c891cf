// AlgorithmChoice: which of several ways a product is made. The library's first guess, until the product has been
// asked for so often that trying the others costs no more than what it has cost; then the fastest that gives the same
// bits, so that neither when nor how the choice was made shows in a result.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <numeric>
#include <vector>

namespace weft::cuda {

// When a product is worth a trial.
struct TrialTerms {
  int64_t least_products = int64_t(1) << 30;  // m n k: less is over as soon as it has begun
  // m n: among so many sums rounded to 16 bits, those that were made in another order show.
  int64_t least_results = int64_t(1) << 19;
  int64_t uses = 64;  // before: about as many runs as a trial makes
};

// Thread-safe.
template <class Algorithm>
class AlgorithmChoice {
 public:
  explicit AlgorithmChoice(const Algorithm& first) : algorithm_(first) {}

  // better_than(first) is asked once, by whoever comes after `uses` others, who go on with the first meanwhile.
  template <class Find>
  Algorithm use(int64_t uses, const Find& better_than) {
    std::unique_lock lock(mutex_);
    if (uses_++ != uses) return algorithm_;
    const Algorithm first = algorithm_;
    lock.unlock();
    const Algorithm better = better_than(first);
    lock.lock();
    return algorithm_ = better;
  }
  Algorithm now() const {
    const std::lock_guard lock(mutex_);
    return algorithm_;
  }

 private:
  mutable std::mutex mutex_;
  Algorithm algorithm_;
  int64_t uses_ = 0;
};

// Of `count` ways the fastest that is like the first. seconds(i): that one run takes, infinite where it fails;
// is_like_first(i): whether the bits are the same, asked only of those that are faster.
template <class Seconds, class IsLikeFirst>
size_t fastest_alike(size_t count, const Seconds& seconds, const IsLikeFirst& is_like_first) {
  constexpr int kRounds = 5;            // in turn, since a card's clock changes
  constexpr double kWorthwhile = 0.99;  // of the first one's time
  std::vector<double> least(count, std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < count; ++i) least[i] = std::min(least[i], seconds(i));
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return least[a] < least[b]; });
  for (const size_t i : order) {
    if (i == 0 || !(least[i] < kWorthwhile * least[0])) break;
    if (is_like_first(i)) return i;
  }
  return 0;
}

}  // namespace weft::cuda
