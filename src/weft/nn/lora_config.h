// LoraConfig: which projections of a model have low-rank adapters beside them, and of what size.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// Of attention, of feed-forward parts that all tokens pass, of experts, of their router, of the gate of shared ones
// and of what others read and write in place of the residual stream, and of layers with states, whose inputs are its
// queries, keys and values.
enum class LoraTarget : uint8_t {
  query,
  key,
  value,
  output,
  gate,
  up,
  down,
  expert_gate,
  expert_up,
  expert_down,
  router,
  shared_gate,
  latent_down,
  latent_up,
  state_inputs,
  state_gate,
  state_output,
  state_decay,
  state_beta
};
using LoraTargets = uint32_t;  // a bit for each

constexpr LoraTargets bit_of(LoraTarget target) { return LoraTargets(1 << uint8_t(target)); }
inline constexpr LoraTargets kAllTargets = 2 * bit_of(LoraTarget::state_beta) - 1;
inline constexpr LoraTargets kExpertTargets =
    bit_of(LoraTarget::expert_gate) | bit_of(LoraTarget::expert_up) | bit_of(LoraTarget::expert_down);
inline constexpr LoraTargets kStateTargets = kAllTargets & ~(bit_of(LoraTarget::state_inputs) - 1);

inline constexpr int64_t kMostLoraRank = 1024;

// What the frozen weights of projections are held as.
enum class BaseFormat : uint8_t { plain, nf4 };

// A projection w with an adapter gives x wᵀ + scale() * drop(x) aᵀ bᵀ. Source: Hu et al., "LoRA", 2021.
struct LoraConfig {
  int64_t rank = 0;  // 0: there are none
  float alpha = 16;
  float dropout = 0;  // of x, in training
  LoraTargets targets = 0;
  BaseFormat base = BaseFormat::plain;  // in training; saved models are plain
  bool is_dora = false;                 // rows of the adapted weight have trained lengths: see parallel/dora.h

  float scale() const { return alpha / float(rank); }
  bool has(LoraTarget target) const { return rank > 0 && (targets & bit_of(target)) != 0; }
  bool operator==(const LoraConfig&) const = default;
};

// Whether a parameter belongs to an adapter, by its name.
inline bool is_adapter(std::string_view param) {
  return param.ends_with(".lora_a") || param.ends_with(".lora_b") || param.ends_with(".lora_magnitude");
}

// "q", "k", "v", "o", "gate", "up", "down"; of the latter, those of experts alone, "expert_gate" ..., or without
// them, "dense_gate" ...; "router"; "shared_gate"; "latent_down", "latent_up"; "state_qkv", "state_gate", "state_o",
// "state_decay", "state_beta"; or "all-linear" for all of them. An unknown one throws UsageError naming the key.
LoraTargets lora_targets(const std::vector<std::string>& names);
std::vector<std::string> lora_target_names(const LoraConfig& config);

}  // namespace weft
