// ViT as Hugging Face saves it, by the names of its older and newer versions.
#include "weft/pretrained/encoders/layer_fields.h"
#include "weft/pretrained/encoders/load_encoder.h"
#include "weft/pretrained/hf_family.h"

namespace weft {
namespace {

const EncoderNames kVitNames{.rows = {{"embedding.class_token", "embeddings.cls_token"},
                                      {"embedding.position.weight", "embeddings.position_embeddings"},
                                      {"embedding.projection", "embeddings.patch_embeddings.projection"},
                                      {"layers.#.attention_norm", "encoder.layer.#.layernorm_before"},
                                      {"layers.#.attention_norm", "layers.#.layernorm_before"},
                                      {"layers.#.attention.query", "encoder.layer.#.attention.attention.query"},
                                      {"layers.#.attention.query", "layers.#.attention.q_proj"},
                                      {"layers.#.attention.key", "encoder.layer.#.attention.attention.key"},
                                      {"layers.#.attention.key", "layers.#.attention.k_proj"},
                                      {"layers.#.attention.value", "encoder.layer.#.attention.attention.value"},
                                      {"layers.#.attention.value", "layers.#.attention.v_proj"},
                                      {"layers.#.attention.output", "encoder.layer.#.attention.output.dense"},
                                      {"layers.#.attention.output", "layers.#.attention.o_proj"},
                                      {"layers.#.mlp_norm", "encoder.layer.#.layernorm_after"},
                                      {"layers.#.mlp_norm", "layers.#.layernorm_after"},
                                      {"layers.#.mlp.up", "encoder.layer.#.intermediate.dense"},
                                      {"layers.#.mlp.up", "layers.#.mlp.fc1"},
                                      {"layers.#.mlp.down", "encoder.layer.#.output.dense"},
                                      {"layers.#.mlp.down", "layers.#.mlp.fc2"},
                                      {"final_norm", "layernorm"},
                                      {"classifier", "classifier"}},
                             .base = "vit.",
                             .ignored = {"pooler.*"}};

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
