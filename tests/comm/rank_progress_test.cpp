// Where missing ranks were last seen: what messages say of it, and that notes are read whole while they are written.
#include "weft/comm/rank_progress.h"

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "comm/expect_text.h"
#include "weft/base/error.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/comm/watch.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

std::atomic<bool> has_given_up{false};  // some rank of the run

// Of a run in which some rank must fail.
std::string failure_of(int size, const std::function<void(Communicator&, Allocator&)>& body,
                       milliseconds timeout = milliseconds(600)) {
  has_given_up = false;
  try {
    run_ranks(size,
              [&](Communicator& c) {
                Allocator allocator;
                try {
                  body(c, allocator);
                } catch (...) {
                  has_given_up = true;
                  throw;
                }
              },
              {.timeout = timeout});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Keeps a rank busy outside of all calls until the others have given up.
void dawdle() {
  for (int i = 0; i < 20'000 && !has_given_up; ++i) std::this_thread::sleep_for(milliseconds(1));
}

TEST(WatchdogTest, NamesCallGroupStepAndWhereTheMissingRanksAre) {
  const std::string message = failure_of(4, [](Communicator& c, Allocator& allocator) {
    const Tensor x = allocator.zeros(DType::f32, {1024});
    const auto dp = c.split(0, c.rank(), "dp");
    dp->all_reduce(x);
    c.set_place("forward stage 0 micro-batch 2", 12);
    if (c.rank() == 1) {
      dp->set_place("backward stage 0 micro-batch 2", 12);
      dawdle();
    } else {
      dp->all_reduce(x);
    }
  });
  expect_text(
      message,
      "all_reduce of 4096 bytes f32 (group dp, call 2, step 12): rank 1 did not come within 0.6 s; rank 1 has "
      "made 1 calls and was last seen in \"backward stage 0 micro-batch 2\" of step 12, after all_reduce of "
      "4096 bytes f32 (group dp, call 1); every rank of a group must make the same calls");
}

TEST(WatchdogTest, NamesRanksOfSmallerGroupsAsTheJobDoes) {
  const std::string message = failure_of(4, [](Communicator& c, Allocator&) {
    const auto pair = c.split(c.rank() % 2, c.rank(), "pair");  // ranks 0, 2 and 1, 3
    if (c.rank() == 3) dawdle();
    if (c.rank() == 1) pair->barrier();
  });
  expect_text(message, "barrier (group pair, call 1): rank 1 did not come");
  expect_text(message,
              "rank 1 (rank 3 of world) has made 0 calls and was last seen after barrier (group world, call 3)");
}

TEST(WatchdogTest, NamesTheSenderOfAMessageThatDoesNotCome) {
  const std::string message = failure_of(2, [](Communicator& c, Allocator& allocator) {
    c.set_place("pipeline", 7);
    if (c.rank() == 1) c.set_place("forward stage 0 micro-batch 1", 7), dawdle();
    if (c.rank() == 0) c.recv(allocator.zeros(DType::f32, {16}), 1, 3);
  });
  expect_text(
      message,
      "recv from rank 1, tag 3, of 64 bytes f32 (group world, call 1, step 7): nothing came within 0.6 s; rank 1 "
      "was last seen in \"forward stage 0 micro-batch 1\" of step 7");
}

TEST(WatchdogTest, DoesNotWaitForASenderThatHasLeft) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = failure_of(
      2,
      [](Communicator& c, Allocator& allocator) {
        const Tensor x = allocator.zeros(DType::f32, {16});
        if (c.rank() == 1) return c.send(x, 0, 3);
        std::this_thread::sleep_for(milliseconds(30));
        c.recv(x, 1, 3);  // was sent before
        c.recv(x, 1, 3);
      },
      milliseconds(30'000));
  expect_text(message,
              "recv from rank 1, tag 3, of 64 bytes f32 (group world, call 2): nothing came; rank 1 has left");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(5000));
}

// A rank that is only slow beats its pulse; whoever waits for it, and whoever waits for those, goes on waiting.
TEST(WatchdogTest, WaitsForWhoeverShowsSignsOfLife) {
  const std::string message = failure_of(
      3,
      [](Communicator& c, Allocator& allocator) {
        const Tensor x = allocator.zeros(DType::f32, {16});
        if (c.rank() == 0) {
          for (int beat = 0; beat < 40; ++beat) {
            std::this_thread::sleep_for(milliseconds(30));
            c.pulse()->fetch_add(1);
          }
          c.send(x, 1, 0);
        } else if (c.rank() == 1) {
          c.recv(x, 0, 0);
          c.send(x, 2, 0);
        } else {
          c.recv(x, 1, 0);
        }
        c.barrier();
      },
      milliseconds(500));
  EXPECT_EQ(message, "no error");
}

// Asked every 10 ms of a time that does not really pass.
TEST(WatchdogTest, CountsFromTheLastSignOfLife) {
  RankProgress own{}, other{};
  const std::array<const RankProgress*, 3> notes{&own, &other, nullptr};
  Watch watch(milliseconds(1000), &own, notes);
  const auto begin = Watch::Clock::now();
  const auto given_up_after = [&](milliseconds from) {
    for (milliseconds t = from;; t += milliseconds(10))
      if (t > milliseconds(20'000) || watch.is_over(begin + t)) return t - from;
  };
  for (milliseconds t{10}; t <= milliseconds(2500); t += milliseconds(10)) {
    if (t.count() % 900 == 0 || t == milliseconds(2500)) other.pulse().fetch_add(1);
    ASSERT_FALSE(watch.is_over(begin + t)) << t.count();
    ASSERT_LE(watch.left(begin + t), milliseconds(20)) << "a sleeper looks for life in time";
  }
  const milliseconds waited = given_up_after(milliseconds(2510));
  EXPECT_GE(waited, milliseconds(980));
  EXPECT_LE(waited, milliseconds(1060)) << "once the time, not twice";
  own.set_patient(true);
  for (milliseconds t{4000}; t <= milliseconds(9000); t += milliseconds(10)) ASSERT_FALSE(watch.is_over(begin + t));
  own.set_patient(false);
  EXPECT_LE(given_up_after(milliseconds(9010)), milliseconds(1060));
}

TEST(WatchdogTest, APatientRankWaitsWithoutALimit) {
  const std::string message = failure_of(
      2,
      [](Communicator& c, Allocator&) {
        const Patience patience(c);
        if (c.rank() == 1) std::this_thread::sleep_for(milliseconds(700));
        c.barrier();
      },
      milliseconds(50));
  EXPECT_EQ(message, "no error");
}

TEST(WatchdogTest, NamesAStartedCollectiveUnderWay) {
  const std::string message = failure_of(2, [](Communicator& c, Allocator& allocator) {
    const Tensor x = allocator.zeros(DType::f32, {1024});
    const auto dp = c.split(0, c.rank(), "dp");
    if (c.rank() == 0) c.recv(x, 1, 0);
    Pending pending = dp->start_all_reduce(x);  // by rank 1 only: nobody sends
    dawdle();
    pending.wait();
  });
  if (message.find("nothing came") != std::string::npos) {
    expect_text(message,
                "rank 1 was last seen after barrier (group world, call 3), with a started all_reduce of 4096 "
                "bytes f32 (group dp, call 1) under way");
  } else {
    expect_text(message, "rank 0 has made 0 calls and was last seen inside recv from rank 1, tag 0,");
  }
}

TEST(RankProgressTest, SaysNothingWhenNothingIsKnown) {
  const RankProgress progress{};
  EXPECT_EQ(progress.describe(), "");
  EXPECT_EQ(progress.step(), -1);
  EXPECT_EQ(progress.world_rank(), -1);
  EXPECT_FALSE(progress.has_left());
}

TEST(RankProgressTest, CutsWhatIsTooLong) {
  RankProgress progress{};
  progress.set_place(std::string(300, 'x'), -1);
  EXPECT_EQ(progress.describe(), fmt::format("was last seen in \"{}\"", std::string(87, 'x')));
}

TEST(RankProgressTest, TellsCallsOfBothThreadsApart) {
  RankProgress progress{};
  Collective call;
  call.sequence = 3;
  progress.enter(call, "dp", true);
  EXPECT_TRUE(progress.is_inside(call, "dp"));
  EXPECT_FALSE(progress.is_inside(call, "tp"));
  EXPECT_EQ(progress.describe(), "was last seen with a started barrier (group dp, call 3) under way");
  progress.leave(true);
  EXPECT_FALSE(progress.is_inside(call, "dp"));
  EXPECT_EQ(progress.describe(), "");
}

TEST(NoteTest, IsReadWhole) {
  struct Value {
    int64_t first, second, third, fourth;
  };
  Note<Value> note{};
  std::atomic<bool> stop{false};
  std::vector<std::jthread> writers;
  for (int64_t w = 1; w <= 2; ++w)
    writers.emplace_back([&, w] {
      for (int64_t i = 0; !stop; ++i) note.write({i * w, i * w, i * w, i * w});
    });
  int torn = 0;
  for (int i = 0; i < 2000; ++i) {
    const Value value = note.read();
    torn += value.first != value.second || value.second != value.third || value.third != value.fourth;
  }
  stop = true;
  EXPECT_EQ(torn, 0);
}

}  // namespace
}  // namespace weft
