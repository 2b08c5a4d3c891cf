// ThreadTeam: every worker runs, chunks cover the range once, exceptions reach the caller.
#include "weft/base/thread_team.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "weft/base/ceil_div.h"

namespace weft {
namespace {

// Nothing that exists.
constexpr auto kReads = [](int64_t i) { return reinterpret_cast<const void*>(i * 4096); };

class ThreadTeamTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadTeamTest, testing::Values(1, 2, 3, 8));

TEST_P(ThreadTeamTest, RunsEveryWorkerOncePerRound) {
  ThreadTeam team(GetParam());
  std::vector<int> rounds(size_t(GetParam()), 0);
  for (int i = 0; i < 500; ++i) team.run([&](int worker) { ++rounds[size_t(worker)]; });
  EXPECT_EQ(rounds, std::vector<int>(size_t(GetParam()), 500));
}

TEST_P(ThreadTeamTest, ChunksCoverTheRangeOnce) {
  ThreadTeam team(GetParam());
  for (const int64_t count : {0, 1, 7, 64, 1000}) {
    std::vector<int> hits(size_t(count), 0);
    const auto hit = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) ++hits[size_t(i)];
    };
    team.parallel_for(count, 7, hit);
    EXPECT_EQ(hits, std::vector<int>(size_t(count), 1));
    for (int turn = 0; turn < 3; ++turn) team.parallel_runs(count, 7, hit, kReads);
    EXPECT_EQ(hits, std::vector<int>(size_t(count), 4));
  }
}

// Worker 0 takes a quarter of its run and holds that until all other chunks are done, which others must take from its
// end. Nobody goes on before it has begun.
TEST_P(ThreadTeamTest, AWorkerKeepsToItsNeighboursAndOthersTakeWhatItLeaves) {
  const int size = GetParam();
  constexpr int64_t kChunks = 64;
  const int64_t held = ceil_div(kChunks / size, int64_t(4));
  ThreadTeam team(size);
  std::atomic<int64_t> done{0};
  std::atomic<bool> has_begun{false};
  std::vector<std::vector<int64_t>> taken(static_cast<size_t>(size));
  const auto run = [&](int64_t begin, int64_t, int worker) {
    taken[size_t(worker)].push_back(begin);
    if (begin == 0) has_begun = true;
    while (!has_begun || (size > 1 && begin == 0 && done < kChunks - held)) std::this_thread::yield();
    ++done;
  };
  team.parallel_runs(kChunks, 1, run, kReads);
  EXPECT_EQ(done, kChunks);
  EXPECT_EQ(taken[0].size(), size == 1 ? size_t(kChunks) : size_t(held));
  for (int worker = 1; worker < size; ++worker) {
    const std::vector<int64_t>& mine = taken[size_t(worker)];
    const int64_t first = kChunks * worker / size, end = kChunks * (worker + 1) / size;
    const auto is_own = [&](int64_t chunk) { return first <= chunk && chunk < end; };
    EXPECT_TRUE(std::is_partitioned(mine.begin(), mine.end(), is_own));
    EXPECT_TRUE(std::is_sorted(mine.begin(), std::partition_point(mine.begin(), mine.end(), is_own)));
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
