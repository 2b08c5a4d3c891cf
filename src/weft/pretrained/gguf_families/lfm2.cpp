// LFM2: gated convolutions in layers without heads of keys.
#include "weft/pretrained/gguf_families/gguf_families.h"

namespace weft {
namespace gguf_lfm2 {
namespace {

void fields(GgufFields& f, ModelConfig& c) {
  gguf_attending_layers_fields(f, c, gguf_rms_fields);
  gguf_scaling_fields(f, c);
  f.size("shortconv.l_cache", c.state_conv);
}

void moe_fields(GgufFields& f, ModelConfig& c) {
  fields(f, c);
  gguf_deepseek_expert_fields(f, c, true);
  gguf_router_field(f, c, RouterGate::sigmoid);
  if (!f.is_reading() && (c.routed_scale != 1 || !c.norm_topk))
    f.note(
        "llama.cpp weighs the experts of lfm2moe models so that their weights add up to 1, other than in this one");
}

constexpr NameRow kNames[] = {
    {"layers.#.state.key", "blk.#.shortconv.in_proj", {.part = Part::state_key}},
    {"layers.#.state.query", "blk.#.shortconv.in_proj", {.part = Part::state_query}},
    {"layers.#.state.value", "blk.#.shortconv.in_proj", {.part = Part::state_value}},
    {"layers.#.state.value_conv", "blk.#.shortconv.conv"},
    {"layers.#.state.output", "blk.#.shortconv.out_proj"},
    {"final_norm", "token_embd_norm"},
};
std::span<const NameRow> names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kNames), gguf_halved_names(c)});
  return rows;
}

}  // namespace
}  // namespace gguf_lfm2

std::vector<GgufFamily> gguf_lfm2_families() {
  using namespace gguf_lfm2;

  return {{"lfm2", "lfm2", fields, names}, {"lfm2moe", "lfm2_moe", moe_fields, names}};
}

}  // namespace weft
