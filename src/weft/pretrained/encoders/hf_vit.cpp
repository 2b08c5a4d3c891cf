// ViT as Hugging Face saves it, by the names of its older and newer versions.
#include "weft/pretrained/encoders/layer_fields.h"
#include "weft/pretrained/encoders/load_encoder.h"
#include "weft/pretrained/hf_family.h"

namespace weft {
namespace {

const EncoderNames kVitNames{.rows = {{"embedding.class_token", "vit.embeddings.cls_token"},
                                      {"embedding.position.weight", "vit.embeddings.position_embeddings"},
                                      {"embedding.projection", "vit.embeddings.patch_embeddings.projection"},
                                      {"layers.#.attention_norm", "vit.encoder.layer.#.layernorm_before"},
                                      {"layers.#.attention_norm", "vit.layers.#.layernorm_before"},
                                      {"layers.#.attention.query", "vit.encoder.layer.#.attention.attention.query"},
                                      {"layers.#.attention.query", "vit.layers.#.attention.q_proj"},
                                      {"layers.#.attention.key", "vit.encoder.layer.#.attention.attention.key"},
                                      {"layers.#.attention.key", "vit.layers.#.attention.k_proj"},
                                      {"layers.#.attention.value", "vit.encoder.layer.#.attention.attention.value"},
                                      {"layers.#.attention.value", "vit.layers.#.attention.v_proj"},
                                      {"layers.#.attention.output", "vit.encoder.layer.#.attention.output.dense"},
                                      {"layers.#.attention.output", "vit.layers.#.attention.o_proj"},
                                      {"layers.#.mlp_norm", "vit.encoder.layer.#.layernorm_after"},
                                      {"layers.#.mlp_norm", "vit.layers.#.layernorm_after"},
                                      {"layers.#.mlp.up", "vit.encoder.layer.#.intermediate.dense"},
                                      {"layers.#.mlp.up", "vit.layers.#.mlp.fc1"},
                                      {"layers.#.mlp.down", "vit.encoder.layer.#.output.dense"},
                                      {"layers.#.mlp.down", "vit.layers.#.mlp.fc2"},
                                      {"final_norm", "vit.layernorm"},
                                      {"classifier", "classifier"}},
                             .base = "vit.",
                             .ignored = {"vit.pooler.*"}};

VitConfig read_vit_config(const JsonView& json) {
  HfFields f(json);
  VitConfig c;
  c.encoder = read_encoder_shape(f, "gelu", 1e-12);
  c.patches = read_patches(f, 224, 16);
  if (f.has("qkv_bias")) f.only("qkv_bias", true);
  c.classes = f.has("id2label") ? json.at("id2label").size() : json.integer_or("num_labels", 2, 1, 1 << 24);
  return c;
}

}  // namespace

std::unique_ptr<Vit> open_vit(Context& context, const std::string& folder, const EncoderUse& use) {
  const JsonDocument json = read_config_json(folder);
  const VitConfig config = read_vit_config(json.root());
  return load_encoder<Vit>(context, *open_weights(folder), kVitNames, config,
                           {.layers = config.encoder.layers, .heads = config.encoder.heads}, use);
}

}  // namespace weft
