// Recorder: a sink that keeps what it hears; and ways to ask an engine for what it then heard.
#pragma once
#include <functional>
#include <future>

#include "weft/serve/engine.h"

namespace weft {

struct Heard {
  // Of a token of the answer or of the prompt.
  struct Scored {
    float log_prob = 0;
    int64_t rank = 0;
    std::vector<int32_t> top;
    bool operator==(const Scored&) const = default;
  };
  std::vector<int32_t> tokens;
  std::vector<Scored> scores, prompt_scores;
  std::vector<float> embedding;
  Finish finish;
};

class Recorder : public RequestSink {
 public:
  explicit Recorder(std::promise<Heard> promise, std::function<void()> on_token = {})
      : promise_(std::move(promise)), on_token_(std::move(on_token)) {}
  void on_prompt(std::span<const TokenLogProbs> prompt) override {
    for (const TokenLogProbs& position : prompt) heard_.prompt_scores.push_back(scored(position));
  }
  void on_tokens(std::span<const TokenEvent> tokens) override {
    for (const TokenEvent& token : tokens) {
      heard_.tokens.push_back(token.token);
      if (!token.log_probs.empty()) heard_.scores.push_back(scored(token.log_probs));
    }
    if (on_token_) on_token_();
  }
  void on_vector(std::span<const float> vector) override { heard_.embedding.assign(vector.begin(), vector.end()); }
  void on_finish(const Finish& finish) override {
    heard_.finish = finish;
    promise_.set_value(heard_);
  }

 private:
  static Heard::Scored scored(const TokenLogProbs& p) {
    Heard::Scored result{.log_prob = p.token.log_prob, .rank = p.rank};
    for (const TokenLogProb& one : p.top) result.top.push_back(one.token);
    return result;
  }
  std::promise<Heard> promise_;
  std::function<void()> on_token_;
  Heard heard_;
};

inline std::future<Heard> ask(Engine& engine, Request request, std::function<void()> on_token = {}) {
  std::promise<Heard> promise;
  std::future<Heard> heard = promise.get_future();
  engine.submit(std::move(request), std::make_unique<Recorder>(std::move(promise), std::move(on_token)));
  return heard;
}

inline Request greedy(std::vector<int32_t> prompt, int64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  return request;
}

inline Request embedding_of(std::vector<int32_t> prompt, Pooling pooling = Pooling::last) {
  Request request;
  request.kind = Request::Kind::embed;
  request.pooling = pooling;
  request.prompt = std::move(prompt);
  return request;
}

inline Request sampled(std::vector<int32_t> prompt, int64_t max_tokens, uint64_t seed) {
  Request request = greedy(std::move(prompt), max_tokens);
  request.sampling.temperature = 1;
  request.sampling.seed = seed;
  return request;
}

}  // namespace weft
