// Bamba as Hugging Face saves it: layers of Mamba-2 between those that attend, of whose heads half turns.
#include <nlohmann/json.hpp>

#include "weft/pretrained/families/families.h"
#include "weft/pretrained/local_layers.h"

namespace weft {
namespace hf_bamba {
namespace {

void attending_fields(HfFields& f, ModelConfig& c) {
  constexpr const char* kLayers = "attn_layer_indices";
  if (!f.is_reading()) {
    nlohmann::json& layers = f.to()[kLayers] = nlohmann::json::array();
    for (int64_t i = 0; i < c.layers; ++i)
      if (c.attends(i)) layers.push_back(i);
    return;
  }
  std::vector<bool> attends(size_t(c.layers), false);
  if (f.has(kLayers)) {
    const JsonView layers = f.from().at(kLayers);
    for (int64_t i = 0; i < layers.size(); ++i) attends[size_t(layers.at(i).integer(0, c.layers - 1))] = true;
  }
  set_attending_layers(c, attends);
}

void fields(HfFields& f, ModelConfig& c) {
  // The library's, whatever the file says.
  constexpr double kTurnedShare = 0.5;
  llama_shape_fields(f, c, {.kv_heads = 8, .norm_eps = 1e-5});
  f.size("max_position_embeddings", c.context, 262144);
  rope_fields(f, c, 10000);
  const auto turned = int64_t(double(width_of_head(c)) * kTurnedShare);
  constexpr const char* kTurned = "attn_rotary_emb";
  if (f.is_reading() && f.from().integer_or(kTurned, turned) != turned)
    f.refuse(kTurned, fmt::format("half of each head turns, which is {}", turned));
  c.rotary_dim = turned;
  attention_bias_field(f, c);
  f.flag("mlp_bias", c.mlp_bias, false);
  attending_fields(f, c);
  mamba_fields(f, c);
}

const std::vector<NameRow>& names(const ModelConfig& c) {
  static const std::vector<NameRow> rows = joined({feed_forward_names(), mamba_names(), std::span(llama_names(c))});
  return rows;
}

}  // namespace
}  // namespace hf_bamba

std::vector<HfFamily> hf_bamba_families() {
  using namespace hf_bamba;

  return {{.family = "bamba",
           .model_type = "bamba",
           .architecture = "BambaForCausalLM",
           .fields = fields,
           .names = names,
           .base = "model."}};
}

}  // namespace weft
