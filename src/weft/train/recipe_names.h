// What a recipe's choices are called, once for what reads recipes and for what writes them.
#pragma once
#include "weft/train/recipe.h"

namespace weft {

// In the order of the types' values.
inline constexpr std::string_view kDeviceNames[] = {"cpu", "cuda"};                           // Device
inline constexpr std::string_view kPrecisionNames[] = {"fp32", "bf16", "fp16", "fp8"};        // Precision
inline constexpr std::string_view kGradientNames[] = {"fp32", "bf16"};                        // GradientType
inline constexpr std::string_view kContextModeNames[] = {"ring", "ulysses", "allgather"};     // ContextMode
inline constexpr std::string_view kRecomputeNames[] = {"none", "attention", "mlp", "block"};  // RecomputePolicy::What
inline constexpr std::string_view kRecomputeEvery = "every:";                  // and a number: every n-th block
inline constexpr std::string_view kOffloadNames[] = {"none", "host", "disk"};  // OffloadTo
inline constexpr std::string_view kPolicyNames[] = {"none", "grpo", "dapo", "dr_grpo", "gspo"};  // PolicyMethod
// PreferenceMethod
inline constexpr std::string_view kPreferenceNames[] = {"none", "dpo", "orpo", "kto", "reward"};
// RewardKind; the last one is of training alone.
inline constexpr std::string_view kRewardNames[] = {"number", "exact", "boxed", "contains", "command", "model"};

template <class E>
E choose(Toml& toml, std::string_view key, E otherwise, std::span<const std::string_view> names) {
  const std::string chosen = toml.choice(key, std::string(names[size_t(otherwise)]), names);
  return E(std::ranges::find(names, chosen) - names.begin());
}

inline std::string name_of(const RecomputePolicy& policy) {
  if (policy.every > 1) return fmt::format("{}{}", kRecomputeEvery, policy.every);
  return std::string(kRecomputeNames[size_t(policy.what)]);
}

}  // namespace weft
