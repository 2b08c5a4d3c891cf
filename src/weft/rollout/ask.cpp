// ask: an engine runs until its last answer.
#include "weft/rollout/ask.h"

#include <algorithm>

namespace weft {
namespace {

// Keeps an answer, and stops the engine behind the last one.
class Collector final : public RequestSink {
 public:
  struct Round {
    ContinuousEngine& engine;
    const std::atomic<bool>* stop;
    size_t num_open;
    bool is_whole = true;
    std::string error = {};
  };
  Collector(Round& round, GivenAnswer& answer) : round_(round), answer_(answer) {}
  void on_tokens(std::span<const TokenEvent> tokens) override {
    for (const TokenEvent& t : tokens) {
      answer_.tokens.push_back(t.token);
      if (!t.log_probs.empty()) answer_.logps.push_back(t.log_probs.token.log_prob);
    }
    if (round_.stop && round_.stop->load(std::memory_order_relaxed))
      round_.engine.stop();  // which cancels the others
  }
  void on_finish(const Finish& finish) override {
    if (finish.stop_token) answer_.tokens.push_back(*finish.stop_token);
    answer_.is_cut = finish.reason == FinishReason::length;
    if (finish.reason == FinishReason::error) round_.error = finish.error;
    round_.is_whole &= finish.reason != FinishReason::cancelled;
    if (--round_.num_open == 0) round_.engine.stop();
  }

 private:
  Round& round_;
  GivenAnswer& answer_;
};

}  // namespace

int64_t longest_of(std::span<const Question> questions) {
  int64_t longest = 0;
  for (const Question& q : questions) longest = std::max(longest, int64_t(q.prompt.size()) + q.max_tokens);
  return longest;
}

std::vector<GivenAnswer> ask(ForwardModel& model, std::span<const Question> questions, const AskOptions& options) {
  std::vector<GivenAnswer> answers(model.is_driver() ? questions.size() : 0);
  if (questions.empty()) return answers;
  ContinuousEngine engine(model, options.engine);
  Collector::Round round{engine, options.stop, answers.size()};
  for (size_t i = 0; i < answers.size(); ++i) {
    const Question& q = questions[i];
    Request request;
    request.prompt.assign(q.prompt.begin(), q.prompt.end());
    request.max_tokens = q.max_tokens;
    request.sampling = options.sampling;
    request.sampling.temperature = q.temperature, request.sampling.seed = q.seed;
    request.stop_tokens = options.stop_tokens;
    if (options.has_logps) request.logprobs = 0;
    engine.submit(std::move(request), std::make_unique<Collector>(round, answers[i]));
  }
  engine.run();
  if (!round.error.empty()) throw Error("an answer of the model ended with an error: {}", round.error);
  if (!round.is_whole) answers.clear();
  return answers;
}

}  // namespace weft
