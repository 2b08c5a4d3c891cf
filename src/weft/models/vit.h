// Vit: an image, cut into patches that are read like tokens, to the scores of its classes. Forward only.
// Source: Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021.
#pragma once
#include "weft/models/encoder.h"

namespace weft {

struct PatchShape {
  int64_t image = 0, patch = 0, channels = 3;  // pixels of a side
  int64_t per_side() const { return image / patch; }
  int64_t count() const { return per_side() * per_side(); }
  int64_t numel() const { return channels * patch * patch; }
};

// pixels [channels, image, image] -> [patches, channels * patch * patch], row by row of patches, as a convolution's
// weights want them.
Tensor cut_patches(Context& context, const PatchShape& shape, DType dtype, std::span<const float> pixels);

// A class token, then the patches, and their positions: [1 + patches, H].
class PatchEmbedding {
 public:
  PatchEmbedding(const std::string& name, const PatchShape& shape, int64_t hidden, bool has_bias);

  int64_t num_tokens() const { return positions_.shape[0]; }
  Var operator()(Context& context, std::span<const float> pixels);

  void each_param(auto&& visit) {
    visit(class_token_);
    projection_.each_param(visit);
    visit(positions_);
  }

 private:
  PatchShape shape_;
  Param class_token_;  // [H]
  Linear projection_;  // from a patch
  Param positions_;    // [1 + patches, H]
};

struct VitConfig {
  EncoderShape encoder;
  PatchShape patches;
  int64_t classes = 0;
};

class Vit {
 public:
  // The layers are cut; what is around them is whole on every rank of the first or the last stage.
  explicit Vit(const VitConfig& config, const Partition& partition = {}, const Stages& stages = {});
  const VitConfig& config() const { return config_; }

  // pixels [channels, image, image] -> [1, classes] on the last stage; empty on the others.
  Tensor logits(Context& context, std::span<const float> pixels);

  // Those of this stage.
  void each_param(auto&& visit) {
    if (stages_.is_first()) embedding_.each_param(visit);
    encoder_.each_param(visit);
    if (!stages_.is_last()) return;
    final_norm_.each_param(visit);
    classifier_.each_param(visit);
  }

 private:
  VitConfig config_;
  Stages stages_;
  PatchEmbedding embedding_;
  Encoder encoder_;
  Norm final_norm_;
  Linear classifier_;
};

}  // namespace weft
