// CommandReward: a program of the user says what answers are worth.
#pragma once
#include <optional>
#include <string>

#include "weft/base/child_process.h"
#include "weft/train/policy/rewards.h"

namespace weft {

// The program reads a line of JSON for each answer, {"completion", "cut", "example"}, and writes a line with a number
// for each, in order; it may read many before it writes. It lives as long as this.
class CommandReward final : public Reward {
 public:
  explicit CommandReward(const PolicyConfig& config) : config_(config) {}
  std::vector<double> score(std::span<const ScoredAnswer> answers) override;

 private:
  [[noreturn]] void fail(const std::string& what) const;
  double number_of(std::string_view line) const;

  const PolicyConfig& config_;
  std::optional<ChildProcess> program_;
  std::string read_;  // of a line that is not complete
};

}  // namespace weft
