// What a rank learns when another one fails, is late, leaves or calls something else.
#include <atomic>
#include <chrono>
#include <thread>

#include "comm/expect_text.h"
#include "weft/comm/single/single.h"
#include "weft/comm/threads/run_ranks.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// What each rank's body throws; the group's own outcome is ignored.
std::vector<std::string> messages_of_ranks(int size, const CommOptions& options,
                                           const std::function<void(Communicator&)>& body) {
  std::vector<std::string> messages(size_t(size), "");
  message_of([&] {
    run_ranks(
        size,
        [&](Communicator& c) {
          messages[size_t(c.rank())] = message_of([&] { body(c); });
          if (messages[size_t(c.rank())] != "no error") throw Error("{}", messages[size_t(c.rank())]);
        },
        options);
  });
  return messages;
}

struct Wait {
  std::string name;
  std::function<void(Communicator&, Allocator&)> run;  // never ends without rank 1
};

class AbortTest : public testing::TestWithParam<Wait> {};
INSTANTIATE_TEST_SUITE_P(
    Waits, AbortTest,
    testing::Values(Wait{"all_reduce", [](Communicator& c, Allocator& a) { c.all_reduce(a.zeros(DType::f32, {9})); }},
                    Wait{"large", [](Communicator& c, Allocator& a) { c.all_reduce(a.zeros(DType::f32, {99999})); }},
                    Wait{"recv", [](Communicator& c, Allocator& a) { c.recv(a.zeros(DType::f32, {9}), 1, 7); }},
                    Wait{"pending",
                         [](Communicator& c, Allocator& a) { c.start_all_reduce(a.zeros(DType::f32, {9})).wait(); }},
                    Wait{"dropped",
                         [](Communicator& c, Allocator& a) {
                           c.start_all_reduce(a.zeros(DType::f32, {9}));
                           c.barrier();
                         }},
                    Wait{"split", [](Communicator& c, Allocator&) { c.split(0, 0, "x"); }}),
    [](const auto& test) { return test.param.name; });

TEST_P(AbortTest, AFailureWakesEverybodyAndComesFirst) {
  std::atomic<int> woken{0};
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = message_of([&] {
    run_ranks(4, [&](Communicator& c) {
      if (c.rank() == 1) {
        std::this_thread::sleep_for(milliseconds(30));  // the others sleep by now
        throw Error("the disk is full");
      }
      Allocator allocator;
      try {
        GetParam().run(c, allocator);
      } catch (const AbortedError& error) {
        expect_text(error.what(), "rank 1: the disk is full");
        EXPECT_THROW(c.barrier(), AbortedError);
        ++woken;
        throw;
      }
    });
  });
  EXPECT_EQ(message, "rank 1: the disk is full");
  EXPECT_EQ(woken, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1000));
}

TEST(RunRanksTest, KeepsTheKindOfAFailure) {
  EXPECT_THROW(run_ranks(2,
                         [](Communicator& c) {
                           if (c.rank()) throw UsageError("no such key");
                           c.barrier();
                         }),
               UsageError);
  EXPECT_EQ(message_of([] { run_ranks(2, [](Communicator&) { throw UsageError("no such key"); }); }), "no such key");
  EXPECT_EQ(message_of([] {
              run_ranks(3, [](Communicator& c) {
                if (c.rank() == 2) throw 5;
                c.barrier();
              });
            }),
            "rank 2: an exception of unknown type");
  EXPECT_EQ(message_of([] {
              run_ranks(2, [](Communicator& c) {
                if (c.rank()) c.abort("enough");
                c.barrier();
              });
            }),
            "stopped: enough");
  EXPECT_EQ(message_of([] { run_ranks(1, [](Communicator&) { throw Error("alone"); }); }), "alone");
}

TEST(RunRanksTest, AbortReachesGroupsThatWereSplitOff) {
  const std::string message = message_of([] {
    run_ranks(4, [](Communicator& c) {
      const auto pairs = c.split(c.rank() / 2, c.rank(), "pairs");
      if (c.rank() == 0) throw Error("broken");
      pairs->barrier();
      pairs->barrier();
      c.barrier();
    });
  });
  EXPECT_EQ(message, "rank 0: broken");
}

// The failing rank has a started collective that nobody else joins: it must not wait for it.
TEST(RunRanksTest, AFailureDoesNotWaitForStartedCollectives) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = message_of([] {
    run_ranks(2, [](Communicator& c) {
      Allocator allocator;
      if (c.rank() == 0) {
        const Pending pending = c.start_all_reduce(allocator.zeros(DType::f32, {5000}));
        throw Error("broken");
      }
      c.recv(allocator.zeros(DType::f32, {1}), 0, 0);
    });
  });
  EXPECT_EQ(message, "rank 0: broken");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1000));
}

struct Mismatch {
  std::string name;
  std::function<void(Communicator&, Allocator&)> zero, one;
  std::string text;
};

class MismatchTest : public testing::TestWithParam<Mismatch> {};
const auto all_reduce_f32 = [](Communicator& c, Allocator& a) { c.all_reduce(a.zeros(DType::f32, {1024})); };
INSTANTIATE_TEST_SUITE_P(
    Calls, MismatchTest,
    testing::Values(
        Mismatch{"op", all_reduce_f32,
                 [](Communicator& c, Allocator& a) { c.broadcast(a.zeros(DType::f32, {256}), 0); },
                 "rank 0 calls all_reduce of 4096 bytes f32, rank 1 calls broadcast from rank 0 of 1024 bytes f32 "
                 "(group dp, call 2)"},
        Mismatch{"bytes", all_reduce_f32,
                 [](Communicator& c, Allocator& a) { c.all_reduce(a.zeros(DType::f32, {10000})); },
                 "rank 0 calls all_reduce of 4096 bytes f32, rank 1 calls all_reduce of 40000 bytes f32"},
        Mismatch{"dtype", all_reduce_f32,
                 [](Communicator& c, Allocator& a) { c.all_reduce(a.zeros(DType::i32, {1024})); },
                 "rank 0 calls all_reduce of 4096 bytes f32, rank 1 calls all_reduce of 4096 bytes i32"},
        Mismatch{"reduction", all_reduce_f32,
                 [](Communicator& c, Allocator& a) { c.all_reduce(a.zeros(DType::f32, {1024}), Reduction::max); },
                 "rank 1 calls all_reduce (max) of 4096 bytes f32"},
        Mismatch{"started", all_reduce_f32, [](Communicator& c, Allocator&) { c.barrier(); }, "rank 1 calls barrier"},
        Mismatch{"counts",
                 [](Communicator& c, Allocator& a) {
                   c.all_to_all(a.zeros(DType::f32, {2}), std::vector<int64_t>{1, 1}, a.zeros(DType::f32, {2}),
                                std::vector<int64_t>{1, 1});
                 },
                 [](Communicator& c, Allocator& a) {
                   c.all_to_all(a.zeros(DType::f32, {4}), std::vector<int64_t>{3, 1}, a.zeros(DType::f32, {2}),
                                std::vector<int64_t>{1, 1});
                 },
                 "rank 0 sends 1 rows to rank 1, which expects 3"}),
    [](const auto& test) { return test.param.name; });

TEST_P(MismatchTest, EveryRankNamesBothSides) {
  const auto messages = messages_of_ranks(2, {}, [&](Communicator& world) {
    Allocator allocator;
    const auto c = world.split(0, world.rank(), "dp");
    c->barrier();
    (c->rank() == 0 ? GetParam().zero : GetParam().one)(*c, allocator);
  });
  for (const std::string& message : messages) expect_text(message, GetParam().text);
}

TEST(MessageMismatchTest, RecvNamesBothSides) {
  const auto messages = messages_of_ranks(2, {}, [](Communicator& c) {
    Allocator allocator;
    if (c.rank() == 0) c.send(allocator.zeros(DType::f32, {4}), 1, 3);
    if (c.rank() == 1) c.recv(allocator.zeros(DType::f32, {5}), 0, 3);
  });
  expect_text(messages[1],
              "rank 0 calls send to rank 1, tag 3, of 16 bytes f32, rank 1 calls recv from "
              "rank 0, tag 3, of 20 bytes f32");
}

TEST(TimeoutTest, NamesTheCallAndTheMissingRanks) {
  const std::string message = message_of([] {
    run_ranks(4,
              [](Communicator& c) {
                Allocator allocator;
                const auto dp = c.split(0, c.rank(), "dp");
                dp->barrier();
                if (c.rank() % 2 == 0) dp->all_reduce(allocator.zeros(DType::f32, {1024}));
                if (c.rank() % 2 == 1) c.barrier();
              },
              {.timeout = milliseconds(1000)});
  });
  // Whoever times out first: ranks 0 and 2 in dp, or 1 and 3 in world. A busy machine may keep one from its call for
  // some tenths of a second.
  if (message.find("did not come within 1 s; rank 1") != std::string::npos) {
    expect_text(message,
                "all_reduce of 4096 bytes f32 (group dp, call 2): ranks 1, 3 did not come within 1 s; rank 1 has "
                "made 1 calls and was last seen inside barrier (group world, call 4); rank 3 has made 1 calls and ");
  } else {
    expect_text(message, "barrier (group world, call");
    expect_text(message, "ranks 0, 2 did not come within 1 s; rank 0 has made 3 calls and was last seen inside all_");
  }
}

TEST(TimeoutTest, RecvNamesTheSender) {
  const std::string message = message_of([] {
    run_ranks(2,
              [](Communicator& c) {
                Allocator allocator;
                c.recv(allocator.zeros(DType::f32, {1}), 1 - c.rank(), 4);
              },
              {.timeout = milliseconds(1000)});
  });
  expect_text(message, "tag 4, of 4 bytes f32 (group world, call 1): nothing came within 1 s; rank ");
  expect_text(message, " was last seen inside recv from rank ");
}

TEST(TimeoutTest, ARankThatHasLeftIsNotWaitedFor) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = message_of([] {
    run_ranks(2, [](Communicator& c) {
      c.barrier();
      if (c.rank() == 0) c.barrier();
    });
  });
  expect_text(message, "rank 0: barrier (group world, call 2): rank 1 did not come; rank 1 left after 1 calls");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1000));
}

TEST(SingleTest, ReceivingWhatWasNotSentIsAnError) {
  Allocator allocator;
  const auto c = make_single_communicator();
  EXPECT_THROW(c->recv(allocator.zeros(DType::f32, {1}), 0, 0), Error);
  c->abort("over");
  EXPECT_THROW(c->barrier(), AbortedError);
}

}  // namespace
}  // namespace weft
