// SequentialEngine: the Generator's tokens, cancellation, order and limits; and a real model's known text over HTTP.
#include "weft/serve/sequential_engine.h"

#include <future>
#include <nlohmann/json.hpp>

#include "support/rank.h"
#include "support/test_data.h"
#include "weft/comm/single/single.h"
#include "weft/serve/api/api.h"
#include "weft/serve/bench/http_client.h"
#include "weft/serve/generator.h"
#include "weft/serve/http/server.h"

namespace weft {
namespace {

ModelConfig small_config() {
  ModelConfig m = family_defaults("llama");
  m.layers = 2, m.hidden = 32, m.heads = 4, m.kv_heads = 2, m.ffn = 48, m.vocab = 40, m.context = 64;
  m.init_std = 0.2f;
  complete(m);
  return m;
}

// What a sink heard.
struct Heard {
  std::vector<int32_t> tokens;
  std::vector<float> prompt_log_probs;
  Finish finish;
};
class Recorder : public RequestSink {
 public:
  explicit Recorder(std::promise<Heard> promise, std::function<void()> on_token = {})
      : promise_(std::move(promise)), on_token_(std::move(on_token)) {}
  void on_prompt(std::span<const TokenLogProbs> prompt) override {
    for (const TokenLogProbs& position : prompt) heard_.prompt_log_probs.push_back(position.token.log_prob);
  }
  void on_tokens(std::span<const TokenEvent> tokens) override {
    for (const TokenEvent& token : tokens) heard_.tokens.push_back(token.token);
    if (on_token_) on_token_();
  }
  void on_finish(const Finish& finish) override {
    heard_.finish = finish;
    promise_.set_value(heard_);
  }

 private:
  std::promise<Heard> promise_;
  std::function<void()> on_token_;
  Heard heard_;
};

Request greedy(std::vector<int32_t> prompt, int64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  return request;
}

// Runs `clients` beside the engine, which has this thread.
void with_engine(ForwardModel& model, const SequentialOptions& options,
                 const std::function<void(SequentialEngine&)>& clients) {
  SequentialEngine engine(model, options);
  auto done = std::async(std::launch::async, [&] {
    clients(engine);
    engine.stop();
  });
  engine.run();
  done.get();
}

class SequentialEngineTest : public testing::Test {
 protected:
  SequentialEngineTest() { model_.part().initialize(rank_.context, 11); }
  static std::future<Heard> submit(Engine& engine, Request request) {
    std::promise<Heard> promise;
    std::future<Heard> heard = promise.get_future();
    engine.submit(std::move(request), std::make_unique<Recorder>(std::move(promise)));
    return heard;
  }

  TestRank rank_{cpu_kernels(), 2};
  const std::unique_ptr<Communicator> alone_ = make_single_communicator();
  const Mesh mesh_{*alone_, {}};
  ForwardModel model_{rank_.context, mesh_, small_config(), DType::f32};
};

TEST_F(SequentialEngineTest, MakesTheGeneratorsTokensWhateverThePieces) {
  const std::vector<int32_t> prompt{5, 7, 11, 2, 30, 8, 9};
  std::vector<int32_t> want;
  Generator(model_).generate(prompt, {.max_tokens = 12, .sampling = {.temperature = 0}, .stop_tokens = {}},
                             [&](int32_t token) { want.push_back(token); });
  for (const int64_t pieces : {1, 3, 256}) {
    with_engine(model_, {.prefill_tokens = pieces}, [&](Engine& engine) {
      const Heard heard = submit(engine, greedy(prompt, 12)).get();
      EXPECT_EQ(heard.tokens, want);
      EXPECT_EQ(heard.finish.reason, FinishReason::length);
      EXPECT_EQ(heard.finish.usage.completion_tokens, 12);
    });
  }
}

TEST_F(SequentialEngineTest, StopTokensEndTheAnswerOnceItIsLongEnough) {
  with_engine(model_, {}, [&](Engine& engine) {
    const std::vector<int32_t> all = submit(engine, greedy({5, 7}, 8)).get().tokens;
    Request stopped = greedy({5, 7}, 8);
    stopped.stop_tokens = {all[2]};
    const Heard heard = submit(engine, std::move(stopped)).get();
    EXPECT_EQ(heard.finish.reason, FinishReason::stop);
    EXPECT_EQ(heard.finish.stop_token, all[2]);
    EXPECT_LE(heard.tokens.size(), 2u);
    Request longer = greedy({5, 7}, 8);
    longer.stop_tokens = {all[0]};
    longer.min_tokens = 4;
    EXPECT_GE(submit(engine, std::move(longer)).get().tokens.size(), 4u);
  });
}

TEST_F(SequentialEngineTest, ScoresThePrompt) {
  with_engine(model_, {.prefill_tokens = 2}, [&](Engine& engine) {
    Request request = greedy({5, 7, 11, 2, 30}, 0);
    request.prompt_logprobs = 1;
    const Heard heard = submit(engine, std::move(request)).get();
    ASSERT_EQ(heard.prompt_log_probs.size(), 5u);
    for (size_t i = 1; i < 5; ++i) EXPECT_LT(heard.prompt_log_probs[i], 0);
    EXPECT_EQ(heard.tokens.size(), 0u);
  });
}

TEST_F(SequentialEngineTest, CancelsRunningAndWaitingRequests) {
  with_engine(model_, {}, [&](Engine& engine) {
    std::promise<Heard> promise;
    std::future<Heard> running = promise.get_future();
    std::atomic<RequestId> first{0};
    first = engine.submit(greedy({1, 2}, 60), std::make_unique<Recorder>(std::move(promise), [&] {
                            while (first == 0) std::this_thread::yield();
                            engine.cancel(first);
                          }));
    EXPECT_EQ(running.get().finish.reason, FinishReason::cancelled);
    EXPECT_EQ(submit(engine, greedy({1, 2}, 3)).get().finish.reason, FinishReason::length);
  });
}

TEST_F(SequentialEngineTest, RefusesWhatCannotRunAndWhatIsTooMuch) {
  SequentialEngine engine(model_, {.max_waiting = 2});  // nobody runs it
  EXPECT_THROW(submit(engine, greedy({}, 3)), UsageError);
  EXPECT_THROW(submit(engine, greedy({40}, 3)), UsageError);
  EXPECT_THROW(submit(engine, greedy(std::vector<int32_t>(64, 1), 3)), UsageError);
  Request embedding = greedy({1}, 0);
  embedding.kind = Request::Kind::embed;
  EXPECT_THROW(submit(engine, std::move(embedding)), Unsupported);
  std::future<Heard> one = submit(engine, greedy({1}, 3)), two = submit(engine, greedy({1}, 3));
  EXPECT_THROW(submit(engine, greedy({1}, 3)), Busy);
  EXPECT_EQ(engine.stats().waiting, 2);
  engine.drain(std::chrono::milliseconds(1));
  EXPECT_EQ(one.get().finish.reason, FinishReason::cancelled);
  EXPECT_EQ(two.get().finish.reason, FinishReason::cancelled);
  EXPECT_THROW(submit(engine, greedy({1}, 3)), Busy);
}

TEST(ServedStoryTest, IsTheKnownText) {
  const std::string folder = test_data("models/stories260K");
  if (folder.empty()) GTEST_SKIP() << no_test_data("models/stories260K");
  const nlohmann::json golden = nlohmann::json::parse(std::ifstream(folder + "/golden.json"));
  const std::unique_ptr<ModelSource> source = open_model(folder);
  const std::unique_ptr<Tokenizer> tokenizer = source->tokenizer();
  TestRank rank(cpu_kernels(), 1);
  const auto alone = make_single_communicator();
  const Mesh mesh(*alone, {});
  ForwardModel model(rank.context, mesh, source->config(), DType::f32);
  model.load(*source);
  with_engine(model, {}, [&](Engine& engine) {
    api::Api api({{.name = "stories", .engine = &engine, .tokenizer = tokenizer.get()}}, {});
    http::Server server({.port = 0}, api);
    api.set_ready();
    const auto ask = [&] {
      bench::HttpClient client("127.0.0.1", server.port());
      const nlohmann::json body = {{"prompt", golden["prompt_ids"]}, {"max_tokens", 200}, {"temperature", 0}};
      const bench::HttpResult result = client.request("POST", "/v1/completions", body.dump());
      return nlohmann::json::parse(result.body)["choices"][0]["text"].get<std::string>();
    };
    std::vector<std::future<std::string>> answers;
    for (int i = 0; i < 2; ++i) answers.push_back(std::async(std::launch::async, ask));
    for (auto& answer : answers) {
      std::string text = answer.get();
      if (text.starts_with(' ')) text.erase(0, 1);
      EXPECT_EQ(text, golden["text"].get<std::string>().substr(1));
    }
  });
}

}  // namespace
}  // namespace weft
