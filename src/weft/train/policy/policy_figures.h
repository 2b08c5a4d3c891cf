// PolicyFigures: what became of a step's answers, for metrics.
#pragma once
#include <optional>

namespace weft {

struct PolicyFigures {
  double reward = 0;         // mean over the round's answers
  double reward_std = 0;     // within prompts, mean over them
  double alike = 0;          // share of prompts whose answers are all worth the same: nothing is learned from them
  double answer_tokens = 0;  // mean
  double cut = 0;            // share of answers that were cut off
  double answers_s = 0;      // in which the round was answered and scored
  double answer_tokens_per_s = 0;
  double clipped = 0;        // share of the step's tokens whose ratio went too far
  std::optional<double> kl;  // from the reference, a token
  // Mean |difference| between log-probabilities as chosen and as trained, in a round's first step.
  std::optional<double> gap;
};

// Calls visit(tag, value) for each that is known: in metrics.jsonl its name is what stands behind the slash.
template <class Visit>
void each_figure(const PolicyFigures& f, Visit&& visit) {
  visit("rl/reward", f.reward);
  visit("rl/reward_std", f.reward_std);
  visit("rl/alike", f.alike);
  visit("rl/answer_tokens", f.answer_tokens);
  visit("rl/cut", f.cut);
  visit("rl/answers_s", f.answers_s);
  visit("rl/answer_tokens_per_s", f.answer_tokens_per_s);
  visit("rl/clipped", f.clipped);
  if (f.kl) visit("rl/kl", *f.kl);
  if (f.gap) visit("rl/gap", *f.gap);
}

}  // namespace weft
