// EngineAnswerer: a replica's engine runs until its last answer.
#include "weft/rollout/engine_answerer.h"

#include <algorithm>

#include "weft/rollout/round_shape.h"

namespace weft {
namespace {

int data_rank_of(const MeshShape& shape, int rank) {
  const MeshPlace place = place_of(shape, rank);
  return place.replicate * shape.shard + place.shard;
}

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
      answer_.logps.push_back(t.log_probs.token.log_prob);
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

EngineAnswerer::EngineAnswerer(Trainer& trainer, const Recipe& recipe, AnswererOptions options)
    : recipe_(recipe),
      options_(std::move(options)),
      replica_(trainer.mesh().data_rank() / recipe.mesh.shape.ep),
      num_replicas_(recipe.mesh.shape.dp() / recipe.mesh.shape.ep),
      ranks_(trainer.mesh().world().split_by(
          [&](int rank) { return data_rank_of(recipe.mesh.shape, rank) / recipe.mesh.shape.ep; }, "answers")),
      mesh_(*ranks_, replica_shape(recipe.mesh.shape)),
      policy_(trainer, recipe, mesh_) {}

std::vector<GivenAnswer> EngineAnswerer::ask(std::span<const Question> questions) {
  std::vector<GivenAnswer> answers(mesh_.is_speaker() ? questions.size() : 0);
  if (questions.empty()) return answers;
  int64_t longest = 0;
  for (const Question& q : questions) longest = std::max(longest, int64_t(q.prompt.size()) + q.max_tokens);
  ContinuousEngine engine(policy_.model(), round_options(recipe_.policy, int64_t(questions.size()), longest));
  Collector::Round round{engine, options_.stop, answers.size()};
  for (size_t i = 0; i < answers.size(); ++i) {
    const Question& q = questions[i];
    Request request;
    request.prompt.assign(q.prompt.begin(), q.prompt.end());
    request.max_tokens = q.max_tokens;
    request.sampling.temperature = q.temperature, request.sampling.seed = q.seed;
    request.stop_tokens = options_.stop_tokens;
    request.logprobs = 0;
    engine.submit(std::move(request), std::make_unique<Collector>(round, answers[i]));
  }
  engine.run();
  if (!round.error.empty()) throw Error("an answer of the model ended with an error: {}", round.error);
  if (!round.is_whole) answers.clear();
  return answers;
}

Answerer::Given EngineAnswerer::answer(std::span<const Question> questions) {
  using Clock = std::chrono::steady_clock;
  policy_.take_weights();
  const Cut mine = even_cut(int64_t(questions.size()), replica_, num_replicas_);
  const auto begin = Clock::now();
  Given given{mine.begin, ask(questions.subspan(size_t(mine.begin), size_t(mine.count)))};
  policy_.drop_weights();
  speed_ = {};
  if (given.answers.empty()) return given;
  speed_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (const GivenAnswer& a : given.answers) speed_.tokens += int64_t(a.tokens.size());
  return given;
}

std::unique_ptr<Answerer> make_engine_answerer(Trainer& trainer, const Recipe& recipe, AnswererOptions options) {
  return std::make_unique<EngineAnswerer>(trainer, recipe, std::move(options));
}

}  // namespace weft
