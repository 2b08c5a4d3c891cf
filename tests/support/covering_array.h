// covering_array: few rows in which every pair of levels of any two factors occurs, as far as pairs are possible.
#pragma once
#include <functional>
#include <set>
#include <tuple>
#include <vector>

#include "weft/base/philox.h"

namespace weft {

using Row = std::vector<int>;                                  // a level for each factor
using Pair = std::tuple<size_t, int, size_t, int>;             // factor, level, other factor, its level
using IsPossible = std::function<bool(const Row&)>;

inline std::set<Pair> pairs_of(const Row& row) {
  std::set<Pair> pairs;
  for (size_t a = 0; a < row.size(); ++a)
    for (size_t b = a + 1; b < row.size(); ++b) pairs.insert({a, row[a], b, row[b]});
  return pairs;
}

struct CoveringArray {
  std::vector<Row> rows;
  std::set<Pair> covered, impossible;  // impossible: no row that was tried could hold the pair
};

// num_levels: of each factor. At least `least_rows` rows. Deterministic: a greedy search over counter-based random rows.
inline CoveringArray covering_array(const std::vector<int>& num_levels, const IsPossible& is_possible,
                                    size_t least_rows) {
  CoveringArray array;
  std::set<Pair> open;
  for (size_t a = 0; a < num_levels.size(); ++a)
    for (size_t b = a + 1; b < num_levels.size(); ++b)
      for (int i = 0; i < num_levels[a]; ++i)
        for (int j = 0; j < num_levels[b]; ++j) open.insert({a, i, b, j});
  uint64_t counter = 0;
  const auto random = [&](int limit) { return int(philox(11, counter++)[0] % uint32_t(limit)); };
  const auto random_row = [&](const Pair* wanted) {
    Row row;
    for (const int n : num_levels) row.push_back(random(n));
    if (wanted) row[std::get<0>(*wanted)] = std::get<1>(*wanted), row[std::get<2>(*wanted)] = std::get<3>(*wanted);
    return row;
  };
  constexpr int kTries = 4000, kCandidates = 30;
  std::set<Row> seen;
  while (!open.empty() || array.rows.size() < least_rows) {
    const Pair* const wanted = open.empty() ? nullptr : &*open.begin();
    Row best;
    size_t most = 0;
    for (int tries = 0, found = 0; tries < kTries && found < kCandidates; ++tries) {
      const Row row = random_row(wanted);
      if (seen.contains(row) || !is_possible(row)) continue;
      ++found;
      size_t gain = 1;
      for (const Pair& p : pairs_of(row)) gain += open.contains(p);
      if (gain > most) best = row, most = gain;
    }
    if (best.empty()) {
      if (!wanted) break;
      array.impossible.insert(*wanted);
      open.erase(open.begin());
      continue;
    }
    for (const Pair& p : pairs_of(best)) open.erase(p), array.covered.insert(p);
    seen.insert(best);
    array.rows.push_back(best);
  }
  return array;
}

}  // namespace weft
