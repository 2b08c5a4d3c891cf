// Validation: what a model makes of data that it is not trained on.
#pragma once
#include <optional>

namespace weft {

struct Validation {
  double loss = 0;  // NaN where there is none
  // Of pairs of answers: the share of which the preferred one is worth more, and by how much on average.
  struct Preference {
    double accuracy = 0, margin = 0;
  };
  std::optional<Preference> preference = {};
  // Of prompts, each answered once, by the most likely tokens: what the answers are worth, and their tokens, on
  // average.
  struct Answers {
    double reward = 0, tokens = 0;
  };
  std::optional<Answers> answers = {};
  std::optional<double> accuracy = {};  // of classes: the share of texts that the model finds the right one of
};

}  // namespace weft
