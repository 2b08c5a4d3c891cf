// ask: the answers of a model to many questions, by the engine that serves.
#pragma once
#include <atomic>
#include <span>
#include <vector>

#include "weft/serve/continuous_engine.h"
#include "weft/train/policy/answerer.h"

namespace weft {

struct AskOptions {
  ContinuousOptions engine;
  SamplingOptions sampling;                 // temperature and seed are the questions' own
  std::vector<int32_t> stop_tokens;         // each ends an answer
  bool has_logps = false;                   // whether the answers' log-probabilities are wanted
  const std::atomic<bool>* stop = nullptr;  // set from outside: no more answers are wanted
};

// In the order of the questions, on the driver; none on the others, and none where somebody asked to stop
// before the last one was there. The engine and its cache live as long as the call. Collective over the model's
// ranks.
std::vector<GivenAnswer> ask(ForwardModel& model, std::span<const Question> questions, const AskOptions& options);

// Tokens of the longest question and its answer.
int64_t longest_of(std::span<const Question> questions);

}  // namespace weft
