// Llama 4: what its files do not say llama.cpp knows: chunks of 8,192 tokens, every fourth layer without positions.
#include <algorithm>

#include "weft/pretrained/gguf_families/gguf_families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace gguf_llama4 {
namespace {

constexpr int64_t kChunk = 8192, kGlobalEvery = 4, kExpertsWithoutNorms = 128;

// Every n-th layer has experts.
void expert_layers_field(GgufFields& f, ModelConfig& c) {
  constexpr const char* kStep = "interleave_moe_layer_step";
  int64_t step = c.expert_layers.empty() ? 1 : c.expert_layers.front() + 1;
  f.size(kStep, step);
  if (step < 1) f.refuse(kStep, "it must be at least 1");
  std::vector<bool> told;
  for (int64_t i = 0; i < c.layers; ++i) told.push_back((i + 1) % step == 0);
  set_expert_layers(c, told);
}

void chunk_field(GgufFields& f, ModelConfig& c) {
  constexpr const char* kWindow = "attention.sliding_window";
  if (!f.is_reading() && c.window != kChunk)
    f.note(
        fmt::format("llama.cpp takes chunks of {} tokens in llama4 models, where this one's have {}: longer texts "
                    "differ",
                    kChunk, c.window));
  if (f.is_reading() || c.window != kChunk) f.size(kWindow, c.window, kChunk);
  if (c.window < 1) f.refuse(kWindow, "it must be at least 1");
  f.size("attention.sliding_window_pattern", c.global_every, kGlobalEvery);
}

void fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c, true);
  gguf_bias_fields(f, c);
  gguf_expert_fields(f, c);
  if (c.experts == 0) f.refuse("expert_count", "models of this kind have experts");
  expert_layers_field(f, c);
  chunk_field(f, c);
  if (!f.is_reading()) return;
  c.qk_norm = c.qk_norm_turned = c.experts != kExpertsWithoutNorms;
  c.qk_norm_weight = !c.qk_norm;
}

}  // namespace
}  // namespace gguf_llama4

std::vector<GgufFamily> gguf_llama4_families() {
  using namespace gguf_llama4;

  return {{"llama4", "llama4", fields, gguf_paired_names}};
}

}  // namespace weft
