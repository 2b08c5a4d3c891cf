// gpt-oss: sinks, every second layer local, and experts with biases.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_gpt_oss {
namespace {

void fields(GgufFields& f, ModelConfig& c) {
  constexpr int64_t kGlobalEvery = 2;
  if (!f.is_reading()) c.ffn = c.expert_ffn;
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c);
  if (!f.is_reading() && c.rope_scaling.is_ramp_exact)
    f.note(
        "llama.cpp stretches positions from whole pairs on, where this model's ramp is exact: angles differ a "
        "little");
  c.rope_scaling.is_ramp_exact = c.rope_scaling.kind == RopeScaling::Kind::yarn;  // as all published models have it
  gguf_bias_fields(f, c);
  c.mlp_bias = false;  // those of experts are this architecture's
  gguf_window_fields(f, c, 0, kGlobalEvery, true);
  gguf_expert_fields(f, c);
}

constexpr NameRow kOwn[] = {
    {"layers.#.attention.sinks", "blk.#.attn_sinks.weight"},
    {"layers.#.mlp_norm", "blk.#.post_attention_norm"},
    {"layers.#.moe.router.logit_bias", "blk.#.ffn_gate_inp.bias"},
};
std::span<const NameRow> names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kOwn), gguf_halved_names(c)});
  return rows;
}

}  // namespace
}  // namespace gguf_gpt_oss

std::vector<GgufFamily> gguf_gpt_oss_families() {
  using namespace gguf_gpt_oss;

  return {{"gpt-oss", "gpt_oss", fields, names}};
}

}  // namespace weft
