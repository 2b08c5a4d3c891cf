// CLIP as Hugging Face saves it.
#include "weft/pretrained/encoders/layer_fields.h"
#include "weft/pretrained/encoders/load_encoder.h"
#include "weft/pretrained/hf_family.h"

namespace weft {
namespace {

const EncoderNames kClipNames{
    .rows = {{"text.embedding.weight", "text_model.embeddings.token_embedding.weight"},
             {"text.position.weight", "text_model.embeddings.position_embedding.weight"},
             {"text.layers.#.attention_norm", "text_model.encoder.layers.#.layer_norm1"},
             {"text.layers.#.attention.query", "text_model.encoder.layers.#.self_attn.q_proj"},
             {"text.layers.#.attention.key", "text_model.encoder.layers.#.self_attn.k_proj"},
             {"text.layers.#.attention.value", "text_model.encoder.layers.#.self_attn.v_proj"},
             {"text.layers.#.attention.output", "text_model.encoder.layers.#.self_attn.out_proj"},
             {"text.layers.#.mlp_norm", "text_model.encoder.layers.#.layer_norm2"},
             {"text.layers.#.mlp.up", "text_model.encoder.layers.#.mlp.fc1"},
             {"text.layers.#.mlp.down", "text_model.encoder.layers.#.mlp.fc2"},
             {"text.final_norm", "text_model.final_layer_norm"},
             {"vision.embedding.class_token", "vision_model.embeddings.class_embedding"},
             {"vision.embedding.projection.weight", "vision_model.embeddings.patch_embedding.weight"},
             {"vision.embedding.position.weight", "vision_model.embeddings.position_embedding.weight"},
             {"vision.first_norm", "vision_model.pre_layrnorm"},
             {"vision.layers.#.attention_norm", "vision_model.encoder.layers.#.layer_norm1"},
             {"vision.layers.#.attention.query", "vision_model.encoder.layers.#.self_attn.q_proj"},
             {"vision.layers.#.attention.key", "vision_model.encoder.layers.#.self_attn.k_proj"},
             {"vision.layers.#.attention.value", "vision_model.encoder.layers.#.self_attn.v_proj"},
             {"vision.layers.#.attention.output", "vision_model.encoder.layers.#.self_attn.out_proj"},
             {"vision.layers.#.mlp_norm", "vision_model.encoder.layers.#.layer_norm2"},
             {"vision.layers.#.mlp.up", "vision_model.encoder.layers.#.mlp.fc1"},
             {"vision.layers.#.mlp.down", "vision_model.encoder.layers.#.mlp.fc2"},
             {"vision.final_norm", "vision_model.post_layernorm"},
             {"text.projection.weight", "text_projection.weight"},
             {"vision.projection.weight", "visual_projection.weight"},
             {"logit_scale", "logit_scale"}},
    .base = "",
    .ignored = {"text_model.embeddings.position_ids", "vision_model.embeddings.position_ids"}};

ClipConfig read_clip_config(const JsonView& json) {
  ClipConfig c;
  const JsonView of_text = json.at("text_config"), of_vision = json.at("vision_config");
  HfFields text(of_text), vision(of_vision), both(json);
  c.text = read_encoder_shape(text, "quick_gelu", 1e-5);
  c.vision = read_encoder_shape(vision, "quick_gelu", 1e-5);
  c.patches = read_patches(vision, 224, 32);
  text.size("vocab_size", c.vocab, 49408);
  text.size("max_position_embeddings", c.context, 77);
  int64_t end = 0;
  text.size("eos_token_id", end, 49407);
  c.end_of_text = int32_t(end);
  both.size("projection_dim", c.projected, 512);
  return c;
}

}  // namespace

std::unique_ptr<Clip> open_clip(Context& context, const std::string& folder, const EncoderUse& use) {
  const JsonDocument json = read_config_json(folder);
  const ClipConfig config = read_clip_config(json.root());
  return load_encoder<Clip>(context, *open_weights(folder), kClipNames, config,
                            {.layers = std::min(config.text.layers, config.vision.layers),
                             .heads = std::min(config.text.heads, config.vision.heads)},
                            use);
}

}  // namespace weft
