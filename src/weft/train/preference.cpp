// Preference losses: the formulas.
#include "weft/train/preference.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double log_sigmoid(double x) { return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x)); }

// log(p / (1 - p)) of p = exp(mean log-probability), and its derivative by that mean.
struct LogOdds {
  double value, slope;
};
LogOdds log_odds(double mean) {
  constexpr double kLeast = 1e-12;  // below 0: a certain answer has no odds
  const double m = std::min(mean, -kLeast), rest = -std::expm1(m);
  return {m - std::log(rest), 1 / rest};
}

}  // namespace

double reward(const PreferenceConfig& config, const Answer& answer) {
  if (config.method == PreferenceMethod::reward) return answer.logp;
  const bool has_reference = config.needs_reference();
  return config.beta * (has_reference ? answer.logp - answer.reference : answer.logp / double(answer.tokens));
}

PairLoss dpo_loss(const PreferenceConfig& c, const Answer& chosen, const Answer& rejected) {
  const double z = c.beta * ((chosen.logp - chosen.reference) - (rejected.logp - rejected.reference));
  const double right = 1 - c.label_smoothing, wrong = c.label_smoothing;
  const double slope = c.beta * (wrong * sigmoid(z) - right * sigmoid(-z));
  return {-right * log_sigmoid(z) - wrong * log_sigmoid(-z), slope, -slope};
}

PairLoss orpo_loss(const PreferenceConfig& c, const Answer& chosen, const Answer& rejected, double token_weight) {
  const auto tokens = [](const Answer& a) { return double(std::max<int64_t>(a.tokens, 1)); };
  const LogOdds good = log_odds(chosen.logp / tokens(chosen)), bad = log_odds(rejected.logp / tokens(rejected));
  const double ratio = good.value - bad.value, slope = -c.beta * sigmoid(-ratio);
  return {-token_weight * chosen.logp - c.beta * log_sigmoid(ratio),
          slope * good.slope / tokens(chosen) - token_weight, -slope * bad.slope / tokens(rejected)};
}

PairLoss score_pair_loss(const PreferenceConfig& c, const Answer& chosen, const Answer& rejected) {
  const double z = chosen.logp - rejected.logp, sum = chosen.logp + rejected.logp, slope = 2 * c.center * sum;
  return {c.center * sum * sum - log_sigmoid(z), slope - sigmoid(-z), slope + sigmoid(-z)};
}

AnswerLoss kto_loss(const PreferenceConfig& c, const Answer& answer, bool is_desirable, double kl) {
  const double sign = is_desirable ? 1 : -1, weight = is_desirable ? c.desirable_weight : c.undesirable_weight;
  const double p = sigmoid(sign * c.beta * (answer.logp - answer.reference - kl));
  return {weight * (1 - p), -weight * sign * c.beta * p * (1 - p)};
}

}  // namespace weft
