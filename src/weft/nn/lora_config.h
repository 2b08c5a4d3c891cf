// LoraConfig: which projections of a model have low-rank adapters beside them, and of what size.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

enum class LoraTarget : uint8_t { query, key, value, output, gate, up, down };

inline constexpr int64_t kMostLoraRank = 1024;

// What the frozen weights of projections are held as.
enum class BaseFormat : uint8_t { plain, nf4 };

// A projection w with an adapter gives x wᵀ + scale() * drop(x) aᵀ bᵀ. Source: Hu et al., "LoRA", 2021.
struct LoraConfig {
  int64_t rank = 0;  // 0: there are none
  float alpha = 16;
  float dropout = 0;                    // of x, in training
  uint8_t targets = 0;                  // a bit for each LoraTarget
  BaseFormat base = BaseFormat::plain;  // in training; saved models are plain
  bool is_dora = false;                 // rows of the adapted weight have trained lengths: see parallel/dora.h

  float scale() const { return alpha / float(rank); }
  bool has(LoraTarget target) const { return rank > 0 && (targets >> uint8_t(target) & 1) != 0; }
  bool operator==(const LoraConfig&) const = default;
};

// Whether a parameter belongs to an adapter, by its name.
inline bool is_adapter(std::string_view param) {
  return param.ends_with(".lora_a") || param.ends_with(".lora_b") || param.ends_with(".lora_magnitude");
}

// "q", "k", "v", "o", "gate", "up", "down", or "all-linear" for all of them; an unknown one throws UsageError naming
// the key.
uint8_t lora_targets(const std::vector<std::string>& names);
std::vector<std::string> lora_target_names(const LoraConfig& config);

}  // namespace weft
