// Llama 4 as Hugging Face saves it: layers without positions between those that attend in chunks, experts that read a
// token times its weight, in stacks, and perhaps dense layers between those with experts.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_llama4 {
namespace {

// moe_layers names the layers with experts; without it every n-th layer has them.
void expert_layers_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kLayers = "moe_layers", *kStep = "interleave_moe_layer_step";
  if (!f.is_reading()) {
    nlohmann::json& layers = f.to()[kLayers] = nlohmann::json::array();
    for (int64_t i = 0; i < c.layers; ++i)
      if (c.has_experts(i)) layers.push_back(i);
    return;
  }
  int64_t step = 1;
  f.size(kStep, step, 1);
  std::vector<bool> told(size_t(std::max<int64_t>(c.layers, 0)));
  if (f.has(kLayers)) {
    const JsonView layers = f.from().at(kLayers);
    for (int64_t i = 0; i < layers.size(); ++i) told[size_t(layers.at(i).integer(0, c.layers - 1))] = true;
  } else {
    if (step < 1) f.refuse(kStep, "it must be at least 1");
    for (int64_t i = step - 1; i < c.layers; i += step) told[size_t(i)] = true;
  }
  set_expert_layers(c, told);
  if (c.first_dense_layers == c.layers) c.experts = c.first_dense_layers = 0;
}

// attention_chunk_size, null for none, and layer_types; without these, layers with positions attend in chunks.
void chunk_fields(HfFields& f, ModelConfig& c) {
  constexpr const char *kChunk = "attention_chunk_size", *kTypes = "layer_types";
  constexpr std::string_view kLocal = "chunked_attention", kGlobal = "full_attention";
  if (!f.is_reading()) {
    if (c.window > 0)
      f.size(kChunk, c.window);
    else
      f.to()[kChunk] = nullptr;
    nlohmann::json& types = f.to()[kTypes] = nlohmann::json::array();
    for (int64_t i = 0; i < c.layers; ++i) types.push_back(c.is_local(i) ? kLocal : kGlobal);
    return;
  }
  c.window = 0, c.chunked_window = true;
  if (!f.is_null(kChunk)) f.size(kChunk, c.window, 8192);
  if (c.window == 0) return;
  std::vector<bool> is_local;
  for (int64_t i = 0; i < c.layers; ++i) is_local.push_back(c.is_rotated(i));
  if (f.has(kTypes)) is_local = layers_that_are(f, c, kTypes, kLocal, kGlobal);
  set_local_layers(c, is_local);
}

// Of layers without positions. What turns it on was a number in the first files.
void query_scale_fields(HfFields& f, ModelConfig& c) {
  constexpr const char* kIsScaled = "attn_temperature_tuning";
  if (f.is_reading()) {
    const bool is_number = f.has(kIsScaled) && f.from().at(kIsScaled).is_number();
    bool is_scaled = is_number && f.from().at(kIsScaled).number() != 0;
    if (!is_number) f.flag(kIsScaled, is_scaled, true);
    f.number("attn_scale", c.unrotated_query_beta, 0.1);
    f.size("floor_scale", c.unrotated_query_interval, 8192);
    if (!is_scaled || !c.has_unrotated()) c.unrotated_query_beta = 0;
    return;
  }
  f.to()[kIsScaled] = c.unrotated_query_beta > 0;
  f.to()["attn_scale"] = c.unrotated_query_beta, f.to()["floor_scale"] = c.unrotated_query_interval;
}

void fields(HfFields& f, ModelConfig& c) {
  llama_shape_fields(f, c, {.head_dim = 128, .kv_heads = 8, .norm_eps = 1e-5, .ffn = 8192});
  f.size("max_position_embeddings", c.context, 4096 * 32);
  f.size("intermediate_size", c.expert_ffn, 8192);
  f.size("intermediate_size_mlp", c.ffn, 16384);
  rope_fields(f, c, 500000);
  attention_bias_field(f, c);
  f.flag("use_qk_norm", c.qk_norm, true);
  unrotated_layers_fields(f, c);
  chunk_fields(f, c);
  query_scale_fields(f, c);
  f.size("num_local_experts", c.experts, 16);
  f.size("num_experts_per_tok", c.experts_per_token, 1);
  balance_loss_field(f, c);
  expert_layers_fields(f, c);
}

constexpr NameRow kFeedForward[] = {
    {"layers.#.mlp.gate", "model.layers.#.feed_forward.gate_proj"},
    {"layers.#.mlp.up", "model.layers.#.feed_forward.up_proj"},
    {"layers.#.mlp.down", "model.layers.#.feed_forward.down_proj"},
    {"layers.#.moe.router", "model.layers.#.feed_forward.router"},
    {"layers.#.moe.experts.gate.weight",
     "model.layers.#.feed_forward.experts.gate_up_proj",
     {.part = Part::gate, .is_transposed = true}},
    {"layers.#.moe.experts.up.weight",
     "model.layers.#.feed_forward.experts.gate_up_proj",
     {.part = Part::up, .is_transposed = true}},
    {"layers.#.moe.experts.down.weight", "model.layers.#.feed_forward.experts.down_proj", {.is_transposed = true}},
    {"layers.#.moe.shared.gate", "model.layers.#.feed_forward.shared_expert.gate_proj"},
    {"layers.#.moe.shared.up", "model.layers.#.feed_forward.shared_expert.up_proj"},
    {"layers.#.moe.shared.down", "model.layers.#.feed_forward.shared_expert.down_proj"},
};

const std::vector<NameRow>& names(const ModelConfig&) {
  static const std::vector<NameRow> rows =
      joined({outer_names(), pre_norm_names(), paired_attention_names(), std::span(kFeedForward)});
  return rows;
}

}  // namespace
}  // namespace hf_llama4

std::vector<HfFamily> hf_llama4_families() {
  using namespace hf_llama4;

  return {{.family = "llama4",
           .model_type = "llama4_text",
           .architecture = "Llama4ForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
