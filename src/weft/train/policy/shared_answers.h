// SharedAnswers: answers that single ranks were given, and what they are worth, on every rank.
#pragma once
#include <span>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/train/policy/answerer.h"

namespace weft {

struct SharedAnswers {
  std::vector<GivenAnswer> answers;  // in the order of their questions; none where one of them was not given
  std::vector<double> rewards;       // as many
};

// Of `count` questions, whose answers have at most so many tokens. rewards: of the answers that this rank was given.
// Collective.
SharedAnswers share_answers(Communicator& world, int64_t count, int64_t most_tokens, const Answerer::Given& given,
                            std::span<const double> rewards);

}  // namespace weft
