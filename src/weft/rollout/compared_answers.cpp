// ComparedAnswers: the engine's answers, kept or compared.
#include "weft/rollout/compared_answers.h"

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/rollout/engine_answerer.h"

namespace weft {

Answerer::Given ComparedAnswers::Recorder::answer(std::span<const Question> questions) {
  Given given = own_->answer(questions);
  check(given.answers.size() == questions.size(), "the answers of one rank are not all there");
  for (size_t i = 0; i < given.answers.size(); ++i) given.answers[i].is_cut = i % 4 == 3;
  all_.rounds_.push_back(given.answers);
  return given;
}

Answerer::Given ComparedAnswers::Player::answer(std::span<const Question> questions) {
  Given given = own_->answer(questions);
  check(round_ < all_.rounds_.size() && all_.rounds_[round_].size() == questions.size(),
        "a mesh was asked {} questions in round {}, and the one rank was not", questions.size(), round_);
  const Round& round = all_.rounds_[round_++];
  for (size_t i = 0; i < given.answers.size(); ++i) {
    const GivenAnswer& of_one = round[size_t(given.first) + i];
    ++all_.num_given_, all_.num_same_ += given.answers[i].tokens == of_one.tokens;
    given.answers[i] = of_one;
  }
  return given;
}

namespace {

class MadeUpReward final : public Reward {
 public:
  std::vector<double> score(std::span<const ScoredAnswer> answers) override {
    std::vector<double> all;
    for (const ScoredAnswer& answer : answers) all.push_back(double(to_uniform(uint32_t(name_hash(answer.text)))));
    return all;
  }
};

}  // namespace

MakeAnswerer ComparedAnswers::recording() {
  rounds_.clear();
  return [this](Trainer& trainer, const Recipe& recipe, AnswererOptions options) {
    return std::make_unique<Recorder>(*this, make_engine_answerer(trainer, recipe, std::move(options)));
  };
}

MakeAnswerer ComparedAnswers::replaying() {
  return [this](Trainer& trainer, const Recipe& recipe, AnswererOptions options) {
    return std::make_unique<Player>(*this, make_engine_answerer(trainer, recipe, std::move(options)));
  };
}

std::unique_ptr<Reward> ComparedAnswers::made_up_reward(const PolicyConfig&) {
  return std::make_unique<MadeUpReward>();
}

double ComparedAnswers::take_share_of_same() {
  const int64_t given = num_given_.exchange(0), same = num_same_.exchange(0);
  return given > 0 ? double(same) / double(given) : 1;
}

}  // namespace weft
