// Sampler: chooses the next token from logits; a pure function of (seed, position), so that a request can be
// replayed.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

struct SamplingOptions {
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // keep the k most likely tokens; 0: all
  double top_p = 1;          // keep the most likely tokens that together reach p (Holtzman et al., 2020)
  double min_p = 0;          // keep tokens at least min_p times as likely as the most likely one
  uint64_t seed = 0;
};

// Throws UsageError naming the option that is out of range.
void check_sampling(const SamplingOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}

  // `position` numbers the tokens of one sequence. Ties go to the lower token id.
  int32_t choose(std::span<const float> logits, uint64_t position);

 private:
  struct Candidate {
    float probability;
    int32_t token;
  };
  void keep_likely();

  SamplingOptions options_;
  std::vector<Candidate> candidates_;  // kept for the next call
};

}  // namespace weft
