// Preference losses: what a model's log-probabilities of preferred and rejected answers cost, or its scores of them,
// and their gradients.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace weft {

enum class PreferenceMethod : uint8_t { none, dpo, orpo, kto, reward };

struct PreferenceConfig {
  PreferenceMethod method = PreferenceMethod::none;
  double beta = 0.1;
  double label_smoothing = 0;                           // dpo: the share of pairs whose order is wrong
  double desirable_weight = 1, undesirable_weight = 1;  // kto
  double center = 0;                                    // reward: what keeps scores near 0

  bool needs_reference() const { return method == PreferenceMethod::dpo || method == PreferenceMethod::kto; }
};

// An answer: the sum of its tokens' log-probabilities by the model and by the reference, and how many tokens it has;
// or, of a model that scores texts, its score in place of the first.
struct Answer {
  double logp = 0, reference = 0;
  int64_t tokens = 0;
};

// What training raises for preferred answers: beta times the log-ratio, or for ORPO times the mean log-probability of
// a token, or a model's score.
double reward(const PreferenceConfig& config, const Answer& answer);

// A loss and its derivatives by the model's log-probabilities of both answers.
struct PairLoss {
  double loss = 0, dchosen = 0, drejected = 0;
};

// -log sigmoid(beta (difference of log-ratios)), with smoothed labels. Source: Rafailov et al., 2023.
PairLoss dpo_loss(const PreferenceConfig& config, const Answer& chosen, const Answer& rejected);
// token_weight times the negative log-likelihood of the chosen answer, minus beta log sigmoid(log odds ratio) of the
// answers' mean log-probabilities. Source: Hong et al., 2024.
PairLoss orpo_loss(const PreferenceConfig& config, const Answer& chosen, const Answer& rejected, double token_weight);

// -log sigmoid(score of the chosen answer - that of the rejected one), plus center times the square of their sum.
// Sources: Ouyang et al., "Training language models to follow instructions", 2022 (Bradley and Terry's model);
// Eisenstein et al., "Helping or Herding?", 2023, of the second part.
PairLoss score_pair_loss(const PreferenceConfig& config, const Answer& chosen, const Answer& rejected);

struct AnswerLoss {
  double loss = 0, dlogp = 0;
};
// weight (1 - sigmoid(beta (log-ratio - kl))) of a desirable answer; of another one with the sign turned. kl: the
// mean log-ratio of answers to other prompts, at least 0. Source: Ethayarajh et al., 2024.
AnswerLoss kto_loss(const PreferenceConfig& config, const Answer& answer, bool is_desirable, double kl);

}  // namespace weft
