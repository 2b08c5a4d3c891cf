// Permutation: every index comes out once, for any size and key.
#include "weft/data/permutation.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <numeric>
#include <unordered_set>

namespace weft {
namespace {

TEST(Permutation, IsOneToOneForEverySize) {
  for (uint64_t size = 1; size <= 1000; ++size) {
    const Permutation shuffled(size, size * 77);
    std::vector<bool> seen(size, false);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t value = shuffled(i);
      ASSERT_LT(value, size);
      ASSERT_FALSE(seen[value]) << size;
      seen[value] = true;
    }
  }
}

TEST(Permutation, IsOneToOneOnSamplesOfLargeSizes) {
  for (const uint64_t size : {(uint64_t(1) << 31) + 1, (uint64_t(1) << 40) - 3, uint64_t(1) << 62}) {
    const Permutation shuffled(size, 5);
    std::unordered_set<uint64_t> seen;
    for (uint64_t i = 0; i < 5000; ++i) {
      const uint64_t value = shuffled(i < 2500 ? i : size - 1 - i);
      ASSERT_LT(value, size);
      ASSERT_TRUE(seen.insert(value).second);
    }
  }
}

TEST(Permutation, DependsOnTheKey) {
  int equal = 0;
  for (uint64_t i = 0; i < 1000; ++i) equal += Permutation(1000, 1)(i) == Permutation(1000, 2)(i);
  EXPECT_LT(equal, 20);  // one is expected
}

// The mean distance of neighbours is a third of the size for a uniform shuffle, 1 for none.
TEST(Permutation, Shuffles) {
  for (const uint64_t size : {100, 1000, 65536, 100000}) {
    const Permutation shuffled(size, 42);
    double distance = 0;
    for (uint64_t i = 0; i + 1 < size; ++i) distance += std::abs(double(shuffled(i)) - double(shuffled(i + 1)));
    const double relative = distance / double(size - 1) / double(size);
    EXPECT_NEAR(relative, 1.0 / 3, 0.05) << size;
  }
}

// All 6 orders of 3 come up about equally over keys.
TEST(Permutation, IsFairForSmallSizes) {
  std::array<int, 27> counts{};
  for (uint64_t key = 0; key < 6000; ++key) {
    const Permutation shuffled(3, key);
    ++counts[shuffled(0) * 9 + shuffled(1) * 3 + shuffled(2)];
  }
  for (const int count : counts) {
    if (count != 0) {
      EXPECT_NEAR(count, 1000, 200);
    }
  }
  EXPECT_EQ(std::count(counts.begin(), counts.end(), 0), 27 - 6);
}

}  // namespace
}  // namespace weft
