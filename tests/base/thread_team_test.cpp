// ThreadTeam: every worker runs, chunks cover the range once, exceptions reach the caller.
#include "weft/base/thread_team.h"

#include <atomic>
#include <stdexcept>

namespace weft {
namespace {

class ThreadTeamTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadTeamTest, testing::Values(1, 2, 3, 8));

TEST_P(ThreadTeamTest, RunsEveryWorkerOncePerRound) {
  ThreadTeam team(GetParam());
  std::vector<int> rounds(size_t(GetParam()), 0);
  for (int i = 0; i < 500; ++i) team.run([&](int worker) { ++rounds[size_t(worker)]; });
  EXPECT_EQ(rounds, std::vector<int>(size_t(GetParam()), 500));
}

TEST_P(ThreadTeamTest, ParallelForCoversTheRangeOnce) {
  ThreadTeam team(GetParam());
  for (const int64_t count : {0, 1, 7, 64, 1000}) {
    std::vector<int> hits(size_t(count), 0);
    team.parallel_for(count, 7, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) ++hits[size_t(i)];
    });
    EXPECT_EQ(hits, std::vector<int>(size_t(count), 1));
  }
}

TEST_P(ThreadTeamTest, RethrowsAndGoesOn) {
  ThreadTeam team(GetParam());
  const int last = GetParam() - 1;
  EXPECT_THROW(team.run([&](int worker) {
    if (worker == last) throw std::runtime_error("broken");
  }),
               std::runtime_error);
  std::atomic<int> ran{0};
  team.run([&](int) { ++ran; });
  EXPECT_EQ(ran, GetParam());
}

}  // namespace
}  // namespace weft
