// ComparedAnswers: the answers of one rank, from which meshes learn that are compared with it, beside those that they
// give themselves.
#pragma once
#include <atomic>
#include <vector>

#include "weft/train/policy/answerer.h"
#include "weft/train/policy/rewards.h"

namespace weft {

// A token that rounding turns into another one changes all behind it, and gradients of other answers say nothing. So
// a mesh answers, which is counted, and learns from what the one rank said. Three of four answers count as ended.
class ComparedAnswers {
 public:
  // Of the one rank, and of each rank of a mesh, for as many rounds. This outlives them. Collective.
  MakeAnswerer recording();
  MakeAnswerer replaying();
  // Worth that differs, whatever a model says: those of one that knows nothing are all wrong.
  static std::unique_ptr<Reward> made_up_reward(const PolicyConfig& config);

  // The share of a mesh's answers that were those of the one rank, token by token, since the last call; in this
  // process.
  double take_share_of_same();

  class Listener;
  class Recorder;  // what recording() makes
  class Player;    // and replaying()

 private:
  using Round = std::vector<GivenAnswer>;
  std::vector<Round> rounds_;
  std::atomic<int64_t> num_given_ = 0, num_same_ = 0;
};

// What a rank's own answerer says, in the ears of these.
class ComparedAnswers::Listener : public Answerer {
 public:
  Listener(ComparedAnswers& all, std::unique_ptr<Answerer> own) : all_(all), own_(std::move(own)) {}
  Speed speed() const override { return own_->speed(); }

 protected:
  ComparedAnswers& all_;
  std::unique_ptr<Answerer> own_;
};

class ComparedAnswers::Recorder final : public Listener {
 public:
  using Listener::Listener;
  Given answer(std::span<const Question> questions) override;
};

class ComparedAnswers::Player final : public Listener {
 public:
  using Listener::Listener;
  Given answer(std::span<const Question> questions) override;

 private:
  size_t round_ = 0;
};

}  // namespace weft
