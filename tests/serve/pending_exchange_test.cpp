// An exchange that somebody still holds when its server is gone.
#include "weft/serve/http/pending_exchange.h"

#include <gtest/gtest.h>

namespace weft::http {
namespace {

// Counts the strands that are there, and runs what is posted at once.
struct CountingQueue final : WorkQueue {
  Strand make_strand() override {
    return [counted = strands](std::function<void()> work) { work(); };
  }
  std::shared_ptr<int> strands = std::make_shared<int>(0);
  int64_t num_strands() const { return strands.use_count() - 1; }
};

struct Ending {
  const char* name;
  void (*end)(PendingExchange&);
};
class EndingTest : public testing::TestWithParam<Ending> {};
INSTANTIATE_TEST_SUITE_P(PendingExchange, EndingTest,
                         testing::Values(Ending{"reply", [](PendingExchange& e) { e.reply({.body = "all"}); }},
                                         Ending{"end_of_stream",
                                                [](PendingExchange& e) {
                                                  e.begin_stream({});
                                                  e.end_stream();
                                                }},
                                         Ending{"client_gone", [](PendingExchange& e) { e.client_is_gone(); }},
                                         Ending{"overrun",
                                                [](PendingExchange& e) {
                                                  e.begin_stream({});
                                                  e.write(std::string(1000, 'x'));
                                                }}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(EndingTest, LetsGoOfTheServersThreads) {
  CountingQueue queue;
  int told = 0, ran = 0;
  PendingExchange exchange(
      queue, [&] { ++told; }, 500, {}, true, true);
  exchange.post([&] { ++ran; });
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(queue.num_strands(), 1);
  GetParam().end(exchange);
  EXPECT_EQ(queue.num_strands(), 0);
  exchange.take();
  const int told_before = told;
  exchange.post([&] { ++ran; });
  exchange.write("too late");
  exchange.end_stream();
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(told, told_before);
}

}  // namespace
}  // namespace weft::http
