// The choice among ways of making a product: when it is made, by whom, and that bits come before speed.
#include "weft/kernels/cuda/algorithm_choice.h"

#include <gtest/gtest.h>

#include <thread>

namespace weft::cuda {
namespace {

TEST(AlgorithmChoiceTest, IsMadeOnceAfterItsUses) {
  AlgorithmChoice<int> choice(10);
  int asked = 0;
  const auto find = [&](int first) { return ++asked, first + 1; };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(choice.use(3, find), 10) << i;
  EXPECT_EQ(asked, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(choice.use(3, find), 11) << i;
  EXPECT_EQ(choice.now(), 11);
  EXPECT_EQ(asked, 1);
}

TEST(AlgorithmChoiceTest, OthersGoOnWithTheFirstMeanwhile) {
  AlgorithmChoice<int> choice(1);
  const int found = choice.use(0, [&](int) {
    int other = 0;
    std::thread([&] { other = choice.use(0, [](int) { return 3; }); }).join();
    EXPECT_EQ(other, 1);
    return 2;
  });
  EXPECT_EQ(found, 2);
  EXPECT_EQ(choice.now(), 2);
}

struct Ways {
  const char* name;
  std::vector<double> seconds;  // below 0: it does not run
  std::vector<bool> are_alike;
  size_t best;
};
class FastestAlikeTest : public testing::TestWithParam<Ways> {};
INSTANTIATE_TEST_SUITE_P(Cases, FastestAlikeTest,
                         testing::Values(Ways{"one", {1}, {true}, 0},
                                         Ways{"the_first_is_fastest", {1, 2}, {true, true}, 0},
                                         Ways{"another", {3, 2, 1}, {true, true, true}, 2},
                                         Ways{"the_fastest_has_other_bits", {3, 2, 1}, {true, true, false}, 1},
                                         Ways{"all_others_have_other_bits", {3, 2, 1}, {true, false, false}, 0},
                                         Ways{"hardly_faster", {1, 0.995}, {true, true}, 0},
                                         Ways{"one_does_not_run", {3, -1, 2}, {true, true, true}, 2},
                                         Ways{"the_first_does_not_run", {-1, 2}, {true, true}, 1},
                                         Ways{"none_runs", {-1, -1}, {true, true}, 0}),
                         [](const auto& test) { return test.param.name; });

TEST_P(FastestAlikeTest, IsFound) {
  const Ways& ways = GetParam();
  std::vector<int> runs(ways.seconds.size());
  const auto seconds = [&](size_t i) {
    const double noise = runs[i]++ == 2 ? 0 : 5;  // each is slow most of the time
    return ways.seconds[i] < 0 ? std::numeric_limits<double>::infinity() : ways.seconds[i] + noise;
  };
  const auto is_alike = [&](size_t i) {
    EXPECT_NE(i, 0u);
    return bool(ways.are_alike[i]);
  };
  EXPECT_EQ(fastest_alike(ways.seconds.size(), seconds, is_alike), ways.best);
}

}  // namespace
}  // namespace weft::cuda
