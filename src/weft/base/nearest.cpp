// Edit distance by three rolling rows.
#include "weft/base/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace weft {

int edit_distance(std::string_view a, std::string_view b, int limit) {
  if (std::abs(int(a.size()) - int(b.size())) > limit) return limit + 1;
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = int(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = int(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return std::min(above[b.size()], limit + 1);
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  constexpr size_t kLongestWord = 128;
  if (word.size() > kLongestWord) return {};
  int limit = std::max(2, int(word.size()) / 3);
  std::string best;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestWord || int(candidate.size()) <= limit / 2) continue;
    const int distance = edit_distance(word, candidate, limit);
    if (distance > limit) continue;
    best = candidate;
    limit = distance - 1;
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string best = nearest(word, candidates);
  return best.empty() ? "" : fmt::format("; did you mean {}?", best);
}

}  // namespace weft
