// ReplicatedEngine: requests are shared out, beginnings stay where they are known, and all replicas are told alike.
#include "weft/serve/replicated_engine.h"

#include "serve/company.h"
#include "serve/fake_engine.h"

namespace weft {
namespace {

struct ReplicatedEngineTest : testing::Test {
  static FakeOptions options() { return {.answer = saying("abc"), .step = std::chrono::microseconds(500)}; }
  FakeEngine first{options()}, second{options()};
  ReplicatedEngine engine{{&first, &second}};

  static Request forever(std::vector<int32_t> prompt) { return greedy(std::move(prompt), 1'000'000); }
  std::vector<std::future<Heard>> heard;
  RequestId submit(Request request) {
    std::promise<Heard> promise;
    heard.push_back(promise.get_future());
    return engine.submit(std::move(request), std::make_unique<Recorder>(std::move(promise)));
  }
};

TEST_F(ReplicatedEngineTest, SharesRequestsOut) {
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 20; ++i) ids.push_back(submit(forever({i})));
  EXPECT_EQ(open_of(first), 10);
  EXPECT_EQ(open_of(second), 10);
  EXPECT_EQ(open_of(engine), 20);
  EXPECT_EQ(engine.limits().max_running, 2 * first.limits().max_running);
  EXPECT_EQ(engine.limits().context, first.limits().context);
  for (const RequestId id : ids) engine.cancel(id);
  for (auto& one : heard) EXPECT_EQ(one.get().finish.reason, FinishReason::cancelled);
}

TEST_F(ReplicatedEngineTest, SendsBeginningsWhereTheyAreKnown) {
  std::vector<int32_t> begin(64, 7);
  const auto like_the_first = [&](int32_t last) {
    std::vector<int32_t> prompt = begin;
    prompt.push_back(last);
    return prompt;
  };
  submit(forever(like_the_first(0)));
  for (int32_t i = 1; i < 8; ++i) submit(forever(like_the_first(i)));
  EXPECT_EQ(std::max(open_of(first), open_of(second)), 8);
  for (int32_t i = 8; i < 40; ++i) submit(forever(like_the_first(i)));  // until one is much busier
  EXPECT_GE(std::min(open_of(first), open_of(second)), 12);
  engine.drain(std::chrono::milliseconds(0));
  for (auto& one : heard) one.wait();
}

TEST_F(ReplicatedEngineTest, GivesBackRoomWhenRequestsEnd) {
  for (int round = 0; round < 3; ++round) {
    for (int32_t i = 0; i < 6; ++i) submit(greedy({round * 100 + i}, 3));
    for (auto& one : heard) EXPECT_EQ(one.get().tokens.size(), 3u);
    heard.clear();
    EXPECT_EQ(open_of(first) + open_of(second), 0);
  }
  EXPECT_EQ(engine.stats().generated_tokens_total, 3 * 6 * 3);
  // Short ones may end while others are submitted, on either side; of endless ones each side gets as many, unless it
  // is thought to have more.
  for (int32_t i = 0; i < 6; ++i) submit(forever({1000 + i}));
  EXPECT_EQ(open_of(first), 3);
  EXPECT_EQ(open_of(second), 3);
  engine.drain(std::chrono::milliseconds(0));
  for (auto& one : heard) one.wait();
}

TEST_F(ReplicatedEngineTest, AllHaveAnAdapterOrNone) {
  std::string error = "not told";
  engine.load_adapter("law", "folder", [&](const std::string& e) { error = e; });
  EXPECT_EQ(error, "");
  EXPECT_EQ(second.adapter_folder("law"), "folder");
  EXPECT_EQ(engine.adapters(), (std::vector<std::string>{"an-adapter", "law"}));
  second.unload_adapter("an-adapter");
  EXPECT_EQ(engine.adapters(), std::vector<std::string>{"law"});
  EXPECT_TRUE(engine.unload_adapter("law"));
  EXPECT_EQ(first.adapter_folder("law"), "");
  EXPECT_FALSE(engine.unload_adapter("law"));
}

}  // namespace
}  // namespace weft
