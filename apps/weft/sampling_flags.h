// SamplingFlags: how a command that writes a text chooses its tokens.
#pragma once
#include "command.h"
#include "weft/pretrained/sampling_defaults.h"
#include "weft/serve/sampler.h"

namespace weft::app {

struct SamplingFlags {
  SamplingDefaults given;
  uint64_t seed = 0;
  double temperature = 0.8;  // where neither a flag nor the model's files say one

  // seed_help: what the same seed makes the same.
  void add_to(CLI::App& command, const char* seed_help);
  // What was given comes before what the model's files say. Throws UsageError naming what is out of range.
  SamplingOptions over(const SamplingDefaults& of_model) const;
};

// check_sampling of what was given by flags, which its messages name.
void check_sampling_flags(const SamplingOptions& options);

}  // namespace weft::app
