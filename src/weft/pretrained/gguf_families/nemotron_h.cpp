// Nemotron-H: what a layer is say its numbers of key heads and of channels of its feed-forward part, 0 in layers that
// are something else, and both 0 in layers of Mamba-2.
#include "weft/pretrained/gguf_families/gguf_families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace gguf_nemotron_h {
namespace {

// llama.cpp asks for an eps of LayerNorms, and takes it where there is none of RMSNorms.
void shape_fields(GgufFields& f, ModelConfig& c) {
  constexpr const char *kOfLayerNorms = "attention.layer_norm_epsilon",
                       *kOfRmsNorms = "attention.layer_norm_rms_epsilon";
  gguf_shape_fields(f, c);
  gguf_head_fields(f, c);
  if (!f.is_reading() || f.has(kOfLayerNorms)) f.number(kOfLayerNorms, c.norm_eps);
  if (!f.is_reading() || f.has(kOfRmsNorms) || !f.has(kOfLayerNorms)) f.number(kOfRmsNorms, c.norm_eps);
}

constexpr const char *kKeyHeads = "attention.head_count_kv", *kWidth = "feed_forward_length";

void fields(GgufFields& f, ModelConfig& c) {
  constexpr const char* kKeys[] = {kKeyHeads, kWidth};
  const auto told = gguf_fields_by_layer(f, c, kKeys, shape_fields);
  if (f.is_reading()) {
    // Of a part behind the last layer that predicts a token further on, which is not read: it has both parts in one
    // block, or each in its own.
    gguf_further_layers_field(f, c);
    c.mtp_layers = 0;
    const std::vector<int64_t>&heads = told[0], &widths = told[1];
    std::vector<bool> attends;
    c.mlp_layers.clear();
    for (int64_t i = 0; i < c.layers; ++i) {
      const bool is_mlp = widths[size_t(i)] > 0;
      attends.push_back(heads[size_t(i)] > 0);
      if (is_mlp && attends.back()) f.refuse(kWidth, "a layer must be one part alone");
      if (is_mlp) c.mlp_layers.push_back(i);
    }
    set_attending_layers(c, attends);
  } else {
    std::vector<int64_t> heads, widths;
    for (int64_t i = 0; i < c.layers; ++i) {
      heads.push_back(c.attends(i) ? c.kv_heads : 0);
      widths.push_back(!c.has_mlp(i) ? 0 : c.has_experts(i) ? c.expert_ffn : c.ffn);
    }
    f.set(kKeyHeads, std::move(heads)), f.set(kWidth, std::move(widths));
  }
  gguf_bias_fields(f, c);
  if (c.has_states()) gguf_state_fields(f, c);
}

void moe_fields(GgufFields& f, ModelConfig& c) {
  fields(f, c);
  gguf_deepseek_expert_fields(f, c, true);
  gguf_router_field(f, c, RouterGate::sigmoid);
  // Layers are all of experts, or none is.
  for (const int64_t layer : c.mlp_layers)
    if (!f.is_reading() && !c.has_experts(layer))
      throw Error("nemotron_h_moe models have no dense layers beside those with experts");
  gguf_shared_width_field(f, c);
  if (f.is_reading() || c.expert_latent_dim > 0) f.size("moe_latent_size", c.expert_latent_dim, 0);
  c.first_dense_layers = 0;
  if (f.is_reading()) return;
  f.set("leading_dense_block_count", int64_t(0));
  f.set("expert_shared_count", int64_t(c.shared_experts > 0));
}

// Queries and keys lie pair by pair as of Granite, though nothing turns them.
constexpr NameRow kOwn[] = {{"layers.#.mlp_norm", "blk.#.attn_norm"},
                            {"layers.#.moe.latent_down", "blk.#.ffn_latent_down"},
                            {"layers.#.moe.latent_up", "blk.#.ffn_latent_up"}};
std::span<const NameRow> names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({std::span(kOwn), gguf_mamba_names(), gguf_paired_names(c)});
  return rows;
}

}  // namespace
}  // namespace gguf_nemotron_h

std::vector<GgufFamily> gguf_nemotron_h_families() {
  using namespace gguf_nemotron_h;

  return {{"nemotron_h", "nemotron_h", fields, names}, {"nemotron_h_moe", "nemotron_h", moe_fields, names}};
}

}  // namespace weft
