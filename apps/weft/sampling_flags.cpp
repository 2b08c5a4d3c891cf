// SamplingFlags: flags of their own names, then the model's files, then what is usual.
#include "sampling_flags.h"

namespace weft::app {

void SamplingFlags::add_to(CLI::App& command, const char* seed_help) {
  command.add_option(
      "--temperature", given.temperature,
      fmt::format("0 always takes the most likely token; else what the model's files say, or {}", temperature));
  command.add_option("--top-k", given.top_k, "Choose among the k most likely tokens; 0: all");
  command.add_option("--top-p", given.top_p, "Choose among the tokens that together reach p; 1: all");
  command.add_option("--min-p", given.min_p, "Leave out tokens less likely than this share of the best");
  command.add_option("--repetition-penalty", given.repetition_penalty,
                     "Makes tokens that were there less likely; 1: off");
  command.add_option("--seed", seed, seed_help)->capture_default_str();
}

SamplingOptions SamplingFlags::over(const SamplingDefaults& of_model) const {
  SamplingOptions options{.temperature = temperature, .seed = seed};
  apply(of_model, options);
  apply(given, options);
  check_sampling(options);
  return options;
}

}  // namespace weft::app
