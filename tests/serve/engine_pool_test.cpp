// EnginePool: models come when they are asked for and leave when there is no room; requests wait and none is lost.
#include "weft/serve/engine_pool.h"

#include <atomic>

#include "serve/recorder.h"
#include "serve/test_server.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

constexpr EngineLimits kLimits{.vocab = 257, .context = 64, .max_running = 4, .max_waiting = 8};

// Counts what is loaded, and fails where it is told to.
struct Models {
  std::atomic<int> num_loaded{0}, most_loaded{0}, num_loads{0};
  std::atomic<bool> is_broken{false}, has_failed{false};
  milliseconds load_time{0};
  std::chrono::microseconds step{0};

  class One : public EnginePool::Loaded {
   public:
    One(Models& all, const std::string& text)
        : all_(all), engine_({.answer = saying(text), .step = all.step, .limits = kLimits}) {
      ++all_.num_loads;
      const int now = ++all_.num_loaded;
      if (now > all_.most_loaded) all_.most_loaded = now;
    }
    ~One() override {
      --all_.num_loaded;
      all_.has_failed = false;
    }
    Engine& engine() override { return engine_; }
    bool is_alive() const override { return !all_.has_failed; }

   private:
    Models& all_;
    FakeEngine engine_;
  };
  EnginePool::Load named(const std::string& text) {
    return [this, text]() -> std::unique_ptr<EnginePool::Loaded> {
      std::this_thread::sleep_for(load_time);
      if (is_broken) throw Error("no weights at all");
      return std::make_unique<One>(*this, text);
    };
  }
};

Request asking() {
  Request request = greedy({1, 2, 3}, 16);
  request.stop_tokens = {256};
  return request;
}
std::string text_of(const Heard& heard) {
  EXPECT_EQ(heard.finish.reason, FinishReason::stop) << heard.finish.error;
  return {heard.tokens.begin(), heard.tokens.end()};
}

TEST(EnginePoolTest, LoadsWhatIsAskedForAndNoMoreThanThereIsRoomFor) {
  Models models;
  EnginePool pool({.most_loaded = 2});
  std::vector<Engine*> engines;
  const std::vector<std::string> names{"one", "two", "three", "four"};
  for (const std::string& name : names) engines.push_back(&pool.add(name, kLimits, {}, models.named(name)));
  EXPECT_EQ(models.num_loads, 0);
  for (size_t i : {0u, 1u, 0u, 1u, 2u, 3u, 0u}) EXPECT_EQ(text_of(ask(*engines[i], asking()).get()), names[i]);
  EXPECT_EQ(models.num_loads, 5);
  EXPECT_EQ(models.most_loaded, 2);
  // Of all times that it was loaded; the stop token counts.
  EXPECT_EQ(engines[0]->stats().generated_tokens_total, 3 * 4);
}

TEST(EnginePoolTest, TheLongestUnusedLeaves) {
  Models models;
  EnginePool pool({.most_loaded = 2});
  Engine& a = pool.add("a", kLimits, {}, models.named("a"));
  Engine& b = pool.add("b", kLimits, {}, models.named("b"));
  Engine& c = pool.add("c", kLimits, {}, models.named("c"));
  for (Engine* one : {&a, &b, &a, &c}) text_of(ask(*one, asking()).get());
  EXPECT_EQ(models.num_loads, 3);
  text_of(ask(a, asking()).get());  // b has left
  EXPECT_EQ(models.num_loads, 3);
  text_of(ask(b, asking()).get());
  EXPECT_EQ(models.num_loads, 4);
}

TEST(EnginePoolTest, ManyClientsOfMoreModelsThanFitAreAllAnswered) {
  Models models;
  models.step = std::chrono::microseconds(50);
  EnginePool pool({.most_loaded = 1});
  std::vector<Engine*> engines;
  for (const char* name : {"x", "yy", "zzz"}) {
    EngineLimits many = kLimits;
    many.max_waiting = 1000;
    engines.push_back(&pool.add(name, many, {}, models.named(name)));
  }
  std::vector<std::jthread> clients;
  std::atomic<int> num_answers{0};
  for (size_t c = 0; c < 6; ++c) {
    clients.emplace_back([&, c] {
      for (size_t i = 0; i < 20; ++i) {
        const size_t m = (c + i / 5) % 3;
        num_answers += text_of(ask(*engines[m], asking()).get()).size() == m + 1;
      }
    });
  }
  clients.clear();
  EXPECT_EQ(num_answers, 120);
  EXPECT_EQ(models.most_loaded, 1);
}

TEST(EnginePoolTest, WhatCannotBeLoadedIsToldAndTriedAgain) {
  Models models;
  models.is_broken = true;
  EnginePool pool({});
  Engine& a = pool.add("a", kLimits, {}, models.named("text"));
  const Heard heard = ask(a, asking()).get();
  EXPECT_EQ(heard.finish.reason, FinishReason::error);
  EXPECT_EQ(heard.finish.error, "a cannot be loaded: no weights at all");
  EXPECT_GT(heard.finish.retry_after_s, 0);
  models.is_broken = false;
  EXPECT_EQ(text_of(ask(a, asking()).get()), "text");
}

TEST(EnginePoolTest, AClientIsToldWhenToTryAgain) {
  Models models;
  models.is_broken = true;
  EnginePool pool({});
  const ByteTokenizer tokenizer;
  api::Api api({});
  http::Server server({.port = 0});
  server.listen(api);
  api.serve({{.name = "a",
              .engine = &pool.add("a", kLimits, {}, models.named("text")),
              .tokenizer = &tokenizer,
              .chat_template = nullptr,
              .end_tokens = {ByteTokenizer::kEndOfDocument}}});
  const auto ask_over_http = [&] {
    bench::HttpClient client("127.0.0.1", server.port(), std::chrono::seconds(20));
    return client.request("POST", "/v1/completions", R"({"model": "a", "prompt": "x", "max_tokens": 8})");
  };
  const bench::HttpResult refused = ask_over_http();
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(refused.header("retry-after"), "5");
  EXPECT_NE(refused.body.find("a cannot be loaded: no weights at all"), std::string::npos) << refused.body;
  models.is_broken = false;
  const bench::HttpResult answered = ask_over_http();
  EXPECT_EQ(answered.status, 200) << answered.body;
}

TEST(EnginePoolTest, WhatHasFailedIsLoadedAnew) {
  Models models;
  EnginePool pool({});
  Engine& a = pool.add("a", kLimits, {}, models.named("text"));
  text_of(ask(a, asking()).get());
  models.has_failed = true;
  EXPECT_EQ(text_of(ask(a, asking()).get()), "text");
  EXPECT_EQ(models.num_loads, 2);
}

TEST(EnginePoolTest, TheIdleLeave) {
  Models models;
  EnginePool pool({.most_loaded = 2, .most_idle = milliseconds(20)});
  Engine& a = pool.add("a", kLimits, {}, models.named("text"));
  text_of(ask(a, asking()).get());
  for (int i = 0; i < 2000 && models.num_loaded > 0; ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(models.num_loaded, 0);
  text_of(ask(a, asking()).get());
  EXPECT_EQ(models.num_loads, 2);
}

TEST(EnginePoolTest, RequestsAreCancelledWhereverTheyAre) {
  Models models;
  models.load_time = milliseconds(50);
  models.step = std::chrono::microseconds(1000);
  EnginePool pool({});
  Engine& a = pool.add("a", kLimits, {}, models.named("0123456789"));
  Engine& b = pool.add("b", kLimits, {}, models.named("b"));
  const auto forever = [] { return greedy({1}, 1'000'000); };
  std::promise<Heard> running, waiting;
  auto running_heard = running.get_future(), waiting_heard = waiting.get_future();
  std::promise<void> begun;
  const RequestId first =
      a.submit(forever(), std::make_unique<Recorder>(std::move(running), [&, is_told = false]() mutable {
                 if (!std::exchange(is_told, true)) begun.set_value();
               }));
  begun.get_future().wait();
  const RequestId second = b.submit(forever(), std::make_unique<Recorder>(std::move(waiting)));
  b.cancel(second);  // there is no room for b, and will be none
  EXPECT_EQ(waiting_heard.get().finish.reason, FinishReason::cancelled);
  a.cancel(first);
  EXPECT_EQ(running_heard.get().finish.reason, FinishReason::cancelled);
  a.cancel(first), b.cancel(77);
}

TEST(EnginePoolTest, RefusesWhatNeverRunsAndMoreThanItHolds) {
  Models models;
  models.load_time = milliseconds(100);
  EnginePool pool({});
  Engine& a = pool.add("a", kLimits, {"law"}, models.named("text"));
  EXPECT_THROW(ask(a, greedy({}, 1)), UsageError);
  EXPECT_THROW(ask(a, greedy(std::vector<int32_t>(65, 1), 1)), UsageError);
  Request adapted = asking();
  adapted.adapter = "order";
  EXPECT_THROW(ask(a, std::move(adapted)), UsageError);
  EXPECT_EQ(a.adapters(), std::vector<std::string>{"law"});
  std::vector<std::future<Heard>> open;
  for (int64_t i = 0; i < kLimits.max_open(); ++i) open.push_back(ask(a, asking()));
  EXPECT_THROW(ask(a, asking()), Busy);
  EXPECT_EQ(a.stats().waiting, kLimits.max_open());
  for (auto& one : open) EXPECT_EQ(text_of(one.get()), "text");
}

TEST(EnginePoolTest, EndsWithRequestsOpenAndAfterADrain) {
  Models models;
  models.step = std::chrono::microseconds(1000);
  std::future<Heard> open;
  {
    EnginePool pool({});
    Engine& a = pool.add("a", kLimits, {}, models.named("text"));
    open = ask(a, greedy({1}, 1'000'000));
    while (models.num_loads == 0) std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(open.get().finish.reason, FinishReason::cancelled);
  EnginePool pool({});
  Engine& a = pool.add("a", kLimits, {}, models.named("text"));
  open = ask(a, greedy({1}, 1'000'000));
  a.drain(milliseconds(5));
  EXPECT_EQ(open.get().finish.reason, FinishReason::cancelled);
  EXPECT_THROW(ask(a, asking()), Busy);
}

}  // namespace
}  // namespace weft
