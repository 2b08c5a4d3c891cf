// A real model behind the engine tells its known text, over HTTP and in company, on every mesh.
#include <nlohmann/json.hpp>

#include "pretrained/model_on_ranks.h"
#include "serve/with_engine.h"
#include "support/test_data.h"
#include "weft/serve/api/api.h"
#include "weft/serve/bench/http_client.h"
#include "weft/serve/http/server.h"

namespace weft {
namespace {

class ServedStoryTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test_data("models/stories260K");
    if (folder_.empty()) GTEST_SKIP() << no_test_data("models/stories260K");
    golden_ = nlohmann::json::parse(std::ifstream(folder_ + "/golden.json"));
    source_ = open_model(folder_);
  }
  void with_story_engine(const MeshShape& mesh, const ContinuousOptions& options,
                         const std::function<void(ContinuousEngine&)>& clients) {
    on_ranks(
        source_->config(), mesh, cpu_kernels(), DType::f32, [&](ForwardModel& m) { m.load(*source_); },
        [&](ForwardModel& model) { with_engine(model, options, clients); });
  }
  std::string folder_;
  nlohmann::json golden_;
  std::unique_ptr<ModelSource> source_;
};

TEST_F(ServedStoryTest, IsTheKnownTextOverHttp) {
  const std::unique_ptr<Tokenizer> tokenizer = source_->tokenizer();
  with_story_engine({}, {.kv_blocks = 64}, [&](Engine& engine) {
    api::Api api({});
    http::Server server({.port = 0});
    server.listen(api);
    api.serve({{.name = "stories", .engine = &engine, .tokenizer = tokenizer.get()}});
    const auto ask_over_http = [&] {
      bench::HttpClient client("127.0.0.1", server.port());
      const nlohmann::json body = {{"prompt", golden_["prompt_ids"]}, {"max_tokens", 200}, {"temperature", 0}};
      const bench::HttpResult result = client.request("POST", "/v1/completions", body.dump());
      return nlohmann::json::parse(result.body)["choices"][0]["text"].get<std::string>();
    };
    std::vector<std::future<std::string>> answers;
    for (int i = 0; i < 2; ++i) answers.push_back(std::async(std::launch::async, ask_over_http));
    for (auto& answer : answers) {
      std::string text = answer.get();
      if (text.starts_with(' ')) text.erase(0, 1);
      EXPECT_EQ(text, golden_["text"].get<std::string>().substr(1));
    }
  });
}

TEST_F(ServedStoryTest, IsTheKnownTextAmong63Others) {
  const auto prompt = golden_["prompt_ids"].get<std::vector<int32_t>>();
  auto want = golden_["greedy_ids"].get<std::vector<int32_t>>();
  want.erase(want.begin(), want.begin() + int64_t(prompt.size()));
  const int64_t blocks = 64 * 3;  // too few for all of them: some are preempted
  for (const MeshShape& mesh : {MeshShape{}, MeshShape{.tp = 2}, MeshShape{.pp = 2}}) {
    with_story_engine(mesh, {.kv_blocks = blocks}, [&](Engine& engine) {
      std::mt19937 random(9);
      std::vector<std::future<Heard>> others;
      std::future<Heard> story;
      for (int i = 0; i < 64; ++i) {
        if (i == 40) {
          story = ask(engine, greedy(prompt, int64_t(want.size())));
          continue;
        }
        std::vector<int32_t> other = prompt;
        for (size_t n = random() % 30; n > 0; --n) other.push_back(int32_t(random() % 512));
        others.push_back(ask(engine, sampled(other, int64_t(20 + random() % 80), uint64_t(i))));
      }
      EXPECT_EQ(story.get().tokens, want);
      for (auto& other : others) EXPECT_EQ(other.get().finish.reason, FinishReason::length);
    });
  }
}

}  // namespace
}  // namespace weft
