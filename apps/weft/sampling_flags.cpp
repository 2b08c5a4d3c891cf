// SamplingFlags: flags of their own names, then the model's files, then what is usual.
#include "sampling_flags.h"

#include <algorithm>

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
  command.add_option("--seed", seed, seed_help)->capture_default_str()->check(not_negative());
}

SamplingOptions SamplingFlags::over(const SamplingDefaults& of_model) const {
  const SamplingOptions usual{.temperature = temperature, .seed = seed};
  SamplingOptions options = usual;
  apply(given, options);
  check_sampling_flags(options);
  if (of_model.is_empty()) return options;
  options = usual;
  apply(of_model, options);
  apply(given, options);
  try {
    check_sampling(options);
  } catch (const UsageError& e) {
    throw UsageError("how the model's files say to sample: {}; or say it by a flag", e.what());
  }
  return options;
}

void check_sampling_flags(const SamplingOptions& options) {
  try {
    check_sampling(options);
  } catch (const UsageError& e) {  // "top_k -5: write ..."
    std::string what = e.what();
    std::replace(what.begin(), std::ranges::find(what, ' '), '_', '-');
    throw UsageError("--{}", what);
  }
}

}  // namespace weft::app
