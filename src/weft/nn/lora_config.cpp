// LoraConfig: names of targets.
#include "weft/nn/lora_config.h"

#include <algorithm>
#include <iterator>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr const char* kNames[] = {"q", "k", "v", "o", "gate", "up", "down"};  // in the order of LoraTarget

}  // namespace

uint8_t lora_targets(const std::vector<std::string>& names) {
  uint8_t targets = 0;
  for (const std::string& name : names) {
    const auto* const found = std::find(std::begin(kNames), std::end(kNames), name);
    if (name == "all-linear")
      targets = (1 << std::size(kNames)) - 1;
    else if (found != std::end(kNames))
      targets |= uint8_t(1 << (found - kNames));
    else
      throw UsageError("lora.targets: \"{}\" is no projection; write some of {}, or \"all-linear\"", name,
                       fmt::join(kNames, ", "));
  }
  return targets;
}

std::vector<std::string> lora_target_names(const LoraConfig& config) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (config.has(LoraTarget(i))) names.emplace_back(kNames[i]);
  return names;
}

}  // namespace weft
