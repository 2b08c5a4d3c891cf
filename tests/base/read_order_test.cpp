// ReadOrder: what came after a round is what is expected after it the next time.
#include "weft/base/read_order.h"

#include <array>

namespace weft {
namespace {

// Rounds of two workers, each of which reads a half of some bytes.
struct Rounds {
  ReadOrder order{2};
  std::array<std::byte, 64> memory{};

  // Where the second worker is expected to begin after the round that reads from `at` on; -1: not known.
  int64_t begin(int64_t at) {
    const auto* const next =
        order.begin([&](int worker) -> const void* { return memory.data() + at + 4 * int64_t(worker); });
    return next ? next[1] - memory.data() : -1;
  }
};

TEST(ReadOrderTest, LearnsWhatFollows) {
  Rounds rounds;
  for (const int64_t at : {0, 16, 32}) EXPECT_EQ(rounds.begin(at), -1);
  EXPECT_EQ(rounds.begin(0), 20);
  EXPECT_EQ(rounds.begin(16), 36);
  EXPECT_EQ(rounds.begin(32), 4);
}

TEST(ReadOrderTest, ForgetsWhatDoesNotFollowAnyMore) {
  Rounds rounds;
  for (const int64_t at : {0, 16, 0, 48}) rounds.begin(at);
  EXPECT_EQ(rounds.begin(0), 52);
}

TEST(ReadOrderTest, HoldsSoManyRoundsAtMost) {
  ReadOrder order(2);
  static std::array<std::byte, 100'000> memory;
  const auto begin = [&](size_t at) {
    return order.begin([&](int worker) -> const void* { return &memory[at + size_t(worker)]; });
  };
  // Of what had to make room nothing wrong is told, and what came last is known.
  for (int pass = 0; pass < 2; ++pass)
    for (size_t at = 0; at + 8 < memory.size(); ++at) {
      const std::byte* const* const next = begin(at);
      ASSERT_TRUE(!next || next[1] == &memory[at + 2] || at + 9 >= memory.size()) << at;
    }
  begin(0), begin(1);
  const std::byte* const* const next = begin(0);
  ASSERT_NE(next, nullptr);
  EXPECT_EQ(next[1], &memory[2]);
}

}  // namespace
}  // namespace weft
