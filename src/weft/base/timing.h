// Timing: seconds that have passed, and the middle of several measurements.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace weft {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The larger of the two in the middle where their number is even; 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + int64_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace weft
