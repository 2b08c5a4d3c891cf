// Policy gradients: what answers that a model gave itself are worth against each other, and what their tokens'
// log-probabilities cost.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// grpo     worth against the mean and deviation of a prompt's answers; each answer counts alike. Shao et al.,
//          "DeepSeekMath", 2024, equations 3 and 4, outcome supervision.
// dapo     the same, but each token counts alike, ratios may rise further than they may fall, and answers that were
//          cut off are not learned. Yu et al., 2025, whose choice of prompts `attempts` is.
// dr_grpo  without the deviation and answers' lengths. Liu et al., "Understanding R1-Zero-Like Training", 2025.
// gspo     as grpo, with one ratio to an answer. Zheng et al., 2025.
enum class PolicyMethod : uint8_t { none, grpo, dapo, dr_grpo, gspo };

enum class RewardKind : uint8_t { number, exact, boxed, contains, command, model };

struct PolicyConfig {
  PolicyMethod method = PolicyMethod::none;
  RewardKind reward = RewardKind::number;
  std::vector<std::string> command;  // of RewardKind::command: a program and its arguments
  double command_timeout_s = 600;    // for all answers of a round
  std::string reward_model;          // of RewardKind::model: a saved model with one label
  int64_t answers = 8;               // to each prompt
  int64_t max_tokens = 0;            // of an answer
  int64_t running = 64;              // answers that are made at once, by each replica of the model
  int64_t updates = 1;               // steps on the answers of a round
  int64_t attempts = 1;              // at answers that are not all worth the same: at a prompt, then at others
  int64_t log_answers = 8;           // of a round, that are written to log.dir
  double temperature = 1;
  double clip_low = 0.2, clip_high = 0.2;  // how far a ratio may be below and above 1
  double beta = 0;                         // weight of the divergence from the reference; 0: none is asked

  bool is_on() const { return method != PolicyMethod::none; }
  // The method's own.
  static PolicyConfig of(PolicyMethod method);
  bool divides_by_deviation() const { return method != PolicyMethod::dr_grpo; }
  bool learns_cut_answers() const { return method != PolicyMethod::dapo; }
  bool has_one_ratio() const { return method == PolicyMethod::gspo; }
};

// The mean of some rewards, and their deviation, of a sample.
struct Spread {
  double mean = 0, deviation = 0;
};
Spread spread_of(std::span<const double> rewards);
// Whether all are the same.
bool are_alike(std::span<const double> rewards);

// Of answers in the order of their prompts, `answers` to each: worth less the mean of its prompt's, over their
// deviation (of a sample, plus 1e-4) where the method says so.
std::vector<double> advantages(const PolicyConfig& config, std::span<const double> rewards);

// What a token of an answer counts in the loss of a step, which is divided by the answers of the step. lengths: of
// these, 0 for one that is not learned.
double token_weight(const PolicyConfig& config, int64_t length, std::span<const int64_t> lengths);

// An answer as a step sees it, or a part of one. Log-probabilities of its
// tokens, all as long: by the model now, by the model that gave the answer (empty: the same as now), and by the
// reference (empty: none).
struct LearnedAnswer {
  std::span<const double> logps, old_logps, reference;
  double advantage = 0, weight = 0;
  // log_ratio_of of the whole answer where this is a part of one and it has one ratio.
  std::optional<double> log_ratio = {};
};

// The mean over an answer's tokens of how their log-probabilities moved.
double log_ratio_of(std::span<const double> logps, std::span<const double> old_logps);

// Sums over tokens, for figures of a step.
struct PolicySums {
  double loss = 0;
  double tokens = 0, clipped = 0;  // clipped: whose ratio went too far for the gradient to follow
  double divergence = 0;           // from the reference
};

// weight (-min(r A, clip(r) A) + beta (e^d - d - 1)) of each token, r its ratio to the old model's probability and d
// the log-ratio of the reference to now (Schulman, "Approximating KL Divergence", 2020). dlogps: as many as tokens,
// or none; set to the derivatives.
PolicySums policy_loss(const PolicyConfig& config, const LearnedAnswer& answer, std::span<double> dlogps);

}  // namespace weft
