// Qwen 2 and 3, the latter also with experts, and from Qwen3-Next on with layers of the gated delta rule; and what
// such models are called that read images as well, whose positions are those of text where there is nothing else.
#include "weft/pretrained/gguf_families/gguf_families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace gguf_qwen {
namespace {

void qwen_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_scaling_fields(f, c);
  gguf_window_fields(f, c, 0, 0, false);
}
void qwen2_fields(GgufFields& f, ModelConfig& c) {
  qwen_fields(f, c);
  if (f.is_reading()) c.qkv_bias = f.from().has_qkv_bias;
}
void qwen3_moe_fields(GgufFields& f, ModelConfig& c) {
  qwen_fields(f, c);
  gguf_expert_fields(f, c);
}

void shared_expert_fields(GgufFields& f, ModelConfig& c) {
  gguf_expert_fields(f, c);
  gguf_shared_width_field(f, c, c.expert_ffn);
  if (c.shared_experts == 0)
    f.refuse("expert_shared_feed_forward_length", "it must be a multiple of expert_feed_forward_length");
}

// llama.cpp knows that weights of experts do not add up to one here.
void qwen2_moe_fields(GgufFields& f, ModelConfig& c) {
  qwen2_fields(f, c);
  shared_expert_fields(f, c);
}

// One by one, or every n-th.
void attending_layers(GgufFields& f, ModelConfig& c) {
  constexpr const char* kFlags = "attention.recurrent_layers";
  f.size("full_attention_interval", c.attention_every, 4);
  if (!f.is_reading() && !c.attention_layers.empty()) {
    std::vector<bool> are_recurrent;
    for (int64_t i = 0; i < c.layers; ++i) are_recurrent.push_back(c.is_recurrent(i));
    f.set(kFlags, std::move(are_recurrent));
  }
  const auto* flags = f.is_reading() ? f.flags(kFlags) : nullptr;
  if (!flags) return;
  if (int64_t(flags->size()) < c.layers) f.refuse(kFlags, "it must tell every layer");
  std::vector<bool> attends(flags->begin(), flags->begin() + c.layers);
  attends.flip();
  set_attending_layers(c, attends);
}

void delta_fields(GgufFields& f, ModelConfig& c) {
  gguf_rms_fields(f, c);
  gguf_further_layers_field(f, c);
  gguf_scaling_fields(f, c);
  gguf_state_fields(f, c);
  attending_layers(f, c);
  if (!f.is_reading() && c.state_value_dim != c.state_key_dim)
    f.note(fmt::format("llama.cpp reads {} models of which keys and values are as wide; here they are {} and {}",
                       f.from().architecture, c.state_key_dim, c.state_value_dim));
}
void qwen3_next_fields(GgufFields& f, ModelConfig& c) {
  delta_fields(f, c);
  shared_expert_fields(f, c);
}
// Positions of text are the same in time and on an image; llama.cpp wants to be told how many pairs turn by which.
void qwen35_fields(GgufFields& f, ModelConfig& c) {
  delta_fields(f, c);
  if (!f.is_reading()) f.set("rope.dimension_sections", std::vector<int64_t>{11, 11, 10, 0});
}
void qwen35_moe_fields(GgufFields& f, ModelConfig& c) {
  qwen35_fields(f, c);
  shared_expert_fields(f, c);
}

constexpr NameRow kDelta[] = {
    {"layers.#.mlp_norm", "blk.#.post_attention_norm", {.values = ValueMap::plus_one}},
    {"layers.#.attention.query", "blk.#.attn_q", {.part = Part::head_query}},
    {"layers.#.attention.gate", "blk.#.attn_q", {.part = Part::head_gate}},
    {"layers.#.state.query", "blk.#.attn_qkv", {.part = Part::state_query}},
    {"layers.#.state.key", "blk.#.attn_qkv", {.part = Part::state_key}},
    {"layers.#.state.query_conv", "blk.#.ssm_conv1d", {.part = Part::state_query}},
    {"layers.#.state.key_conv", "blk.#.ssm_conv1d", {.part = Part::state_key}},
    {"layers.#.state.norm", "blk.#.ssm_norm"},
};
constexpr NameRow kDeltaValues[] = {
    {"layers.#.state.value", "blk.#.attn_qkv", {.part = Part::state_value}},
    {"layers.#.state.value_conv", "blk.#.ssm_conv1d", {.part = Part::state_value}},
    {"layers.#.state.gate", "blk.#.attn_gate"},
    {"layers.#.state.beta", "blk.#.ssm_ba", {.part = Part::state_beta, .is_grouped = true}},
    {"layers.#.state.decay", "blk.#.ssm_ba", {.part = Part::state_decay, .is_grouped = true}},
    {"layers.#.state.rate", "blk.#.ssm_a", {.values = ValueMap::minus_exp}},
    {"layers.#.state.shift", "blk.#.ssm_dt.bias"},
    {"layers.#.state.output", "blk.#.ssm_out"},
};
constexpr Layout kTiled{.tiled = Tiled::rows}, kTiledPart{.part = Part::state_value, .tiled = Tiled::rows};
constexpr NameRow kTiledDeltaValues[] = {
    {"layers.#.state.value", "blk.#.attn_qkv", kTiledPart},
    {"layers.#.state.value_conv", "blk.#.ssm_conv1d", kTiledPart},
    {"layers.#.state.gate", "blk.#.attn_gate", kTiled},
    {"layers.#.state.beta", "blk.#.ssm_beta", kTiled},
    {"layers.#.state.decay", "blk.#.ssm_alpha", kTiled},
    {"layers.#.state.rate", "blk.#.ssm_a", {.tiled = Tiled::rows, .values = ValueMap::minus_exp}},
    {"layers.#.state.shift", "blk.#.ssm_dt.bias", kTiled},
    {"layers.#.state.output", "blk.#.ssm_out", {.tiled = Tiled::cols}},
};

std::span<const NameRow> qwen3_next_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows =
      joined({std::span(kDelta), std::span(kDeltaValues), gguf_offset_norms(), gguf_halved_names(c)});
  return rows;
}
std::span<const NameRow> qwen35_names(const ModelConfig& c) {
  static const std::vector<NameRow> rows =
      joined({std::span(kDelta), std::span(kTiledDeltaValues), gguf_offset_norms(), gguf_halved_names(c)});
  return rows;
}

}  // namespace
}  // namespace gguf_qwen

std::vector<GgufFamily> gguf_qwen_families() {
  using namespace gguf_qwen;

  return {{"qwen2", "qwen2", qwen2_fields, gguf_halved_names},
          {"qwen3", "qwen3", qwen_fields, gguf_halved_names},
          {"qwen3moe", "qwen3_moe", qwen3_moe_fields, gguf_halved_names},
          {"qwen2moe", "qwen2_moe", qwen2_moe_fields, gguf_halved_names},
          {"qwen3next", "qwen3_next", qwen3_next_fields, qwen3_next_names},
          {"qwen35", "qwen3_5", qwen35_fields, qwen35_names},
          {"qwen35moe", "qwen3_5_moe", qwen35_moe_fields, qwen35_names},
          {"qwen2vl", "qwen2", qwen2_fields, gguf_halved_names},
          {"qwen3vl", "qwen3", qwen_fields, gguf_halved_names},
          {"qwen3vlmoe", "qwen3_moe", qwen3_moe_fields, gguf_halved_names}};
}

}  // namespace weft
