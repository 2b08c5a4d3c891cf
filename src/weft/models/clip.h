// Clip: a tower of texts and a tower of images whose results may be compared. Forward only.
// Source: Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", 2021.
#pragma once
#include "weft/models/vit.h"

namespace weft {

struct ClipConfig {
  EncoderShape text, vision;
  int64_t vocab = 0, context = 0;
  PatchShape patches;
  int64_t projected = 0;  // width of what comes of both towers
  int32_t end_of_text =
      0;  // what stands at its first place, or at that of the largest id if that is 2, is the text's
};

class Clip {
 public:
  // The layers are cut; what is around them is whole on every rank of the first or the last stage. Every stage has
  // layers of both towers.
  explicit Clip(const ClipConfig& config, const Partition& partition = {}, const Stages& stages = {});
  const ClipConfig& config() const { return config_; }

  // ids: at most `context` -> [1, projected], not yet of length 1. Here and below: on the last stage; empty on the
  // others.
  Tensor embed_text(Context& context, std::span<const int32_t> ids);
  // pixels [channels, image, image] -> [1, projected]
  Tensor embed_image(Context& context, std::span<const float> pixels);

  // Those of this stage.
  void each_param(auto&& visit) {
    if (stages_.is_first()) {
      visit(tokens_), visit(positions_);
      patches_.each_param(visit);
      vision_norm_.each_param(visit);
    }
    text_.each_param(visit);
    vision_.each_param(visit);
    if (!stages_.is_last()) return;
    text_norm_.each_param(visit);
    image_norm_.each_param(visit);
    text_projection_.each_param(visit);
    image_projection_.each_param(visit);
    visit(logit_scale_);
  }

 private:
  ClipConfig config_;
  Stages stages_;
  Param tokens_, positions_;  // [V, H], [context, H]
  Encoder text_;
  Norm text_norm_;
  PatchEmbedding patches_;
  Norm vision_norm_;  // before the layers
  Encoder vision_;
  Norm image_norm_;  // of the class token
  Linear text_projection_, image_projection_;
  Param logit_scale_;  // [1]: the logarithm of what similarities are multiplied by in training
};

}  // namespace weft
