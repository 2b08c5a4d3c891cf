// Activation: functions of single numbers, f(x), and gated, f(gate) * up.
#pragma once
#include <cstdint>

namespace weft {

// relu_squared is max(x, 0)^2 (So et al., "Primer", 2021), gelu_quick x sigmoid(1.702 x), and swiglu_oai that of
// min(x, 7); swiglu_clipped is silu of min(x, 10). identity is x: gated, a product of two. Gated, f(gate) * up,
// swiglu_oai has 1 + up in place of up, with up between -7 and 7, and swiglu_clipped up between -10 and 10. Sources:
// OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025; DeepSeek-AI, DeepSeek-V4, 2026.
enum class Activation : uint8_t {
  gelu,
  gelu_tanh,
  relu,
  relu_squared,
  silu,
  gelu_quick,
  swiglu_oai,
  swiglu_clipped,
  sigmoid,
  tanh,
  identity
};
inline constexpr float kOaiLimit = 7, kClippedLimit = 10;

}  // namespace weft
