// LoraConfig: names of targets.
#include "weft/nn/lora_config.h"

#include <algorithm>
#include <span>

#include "weft/base/error.h"

namespace weft {
namespace {

struct Name {
  const char* name;
  LoraTargets targets;
};

// Of several that hold a target, the first one names it.
std::span<const Name> all_names() {
  using enum LoraTarget;
  static constexpr Name kNames[] = {{"all-linear", kAllTargets},
                                    {"q", bit_of(query)},
                                    {"k", bit_of(key)},
                                    {"v", bit_of(value)},
                                    {"o", bit_of(output)},
                                    {"gate", bit_of(gate) | bit_of(expert_gate)},
                                    {"up", bit_of(up) | bit_of(expert_up)},
                                    {"down", bit_of(down) | bit_of(expert_down)},
                                    {"dense_gate", bit_of(gate)},
                                    {"dense_up", bit_of(up)},
                                    {"dense_down", bit_of(down)},
                                    {"expert_gate", bit_of(expert_gate)},
                                    {"expert_up", bit_of(expert_up)},
                                    {"expert_down", bit_of(expert_down)},
                                    {"router", bit_of(router)},
                                    {"shared_gate", bit_of(shared_gate)},
                                    {"latent_down", bit_of(latent_down)},
                                    {"latent_up", bit_of(latent_up)},
                                    {"state_qkv", bit_of(state_inputs)},
                                    {"state_gate", bit_of(state_gate)},
                                    {"state_o", bit_of(state_output)},
                                    {"state_decay", bit_of(state_decay)},
                                    {"state_beta", bit_of(state_beta)}};
  return kNames;
}

}  // namespace

LoraTargets lora_targets(const std::vector<std::string>& names) {
  LoraTargets targets = 0;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(all_names(), std::string_view(name), &Name::name);
    if (found == all_names().end()) {
      std::vector<std::string_view> known;
      for (const Name& n : all_names()) known.emplace_back(n.name);
      throw UsageError("lora.targets: \"{}\" is no projection; write some of {}", name, fmt::join(known, ", "));
    }
    targets |= found->targets;
  }
  return targets;
}

std::vector<std::string> lora_target_names(const LoraConfig& config) {
  std::vector<std::string> names;
  LoraTargets left = config.rank > 0 ? config.targets : LoraTargets(0);
  for (const Name& n : all_names()) {
    if (left == 0 || (left & n.targets) != n.targets) continue;
    names.emplace_back(n.name);
    left &= LoraTargets(~n.targets);
  }
  return names;
}

}  // namespace weft
