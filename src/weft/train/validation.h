// Validation: what a model makes of data that it is not trained on.
#pragma once
#include <optional>

namespace weft {

struct Validation {
  double loss = 0;
  // Of pairs of answers: the share of which the preferred one is worth more, and by how much on average.
  struct Preference {
    double accuracy = 0, margin = 0;
  };
  std::optional<Preference> preference = {};
};

}  // namespace weft
