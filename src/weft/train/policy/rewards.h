// Reward: what answers are worth, as a rule or a program of the user says.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/prompts.h"
#include "weft/train/policy/answerer.h"
#include "weft/train/policy/policy_gradient.h"

namespace weft {

struct ScoredAnswer {
  const Prompt* prompt;
  std::string text;     // as it is read, without what ended it
  bool is_cut = false;  // it was longer
};

// Throws UsageError where an example has no answer that the reward compares with. key: what names the examples.
void require_answers(const PolicyConfig& config, const std::vector<Prompt>& prompts, std::string_view key);

// An answer as text.
ScoredAnswer scored_answer(const Prompt& prompt, const GivenAnswer& answer, const Tokenizer& tokenizer);

class Reward {
 public:
  virtual ~Reward() = default;
  // One number to each answer. Throws Error naming what is wrong with them or with the program.
  virtual std::vector<double> score(std::span<const ScoredAnswer> answers) = 0;
};

// A program is started when it is first asked.
std::unique_ptr<Reward> make_reward(const PolicyConfig& config);
using MakeReward = std::function<std::unique_ptr<Reward>(const PolicyConfig& config)>;

// 1 where the last number of a text is that of the expected answer, whose own last number counts, "1,234.50" as
// 1234.5.
double number_reward(std::string_view text, std::string_view expected);
// 1 where what the last \boxed{} of a text holds is the expected answer, or that answer's own last \boxed{}: the same
// number, or the same text but for white space.
double boxed_reward(std::string_view text, std::string_view expected);

}  // namespace weft
