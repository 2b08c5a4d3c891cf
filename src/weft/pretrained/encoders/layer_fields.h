// What the configurations of several encoders share.
#pragma once
#include "weft/models/vit.h"
#include "weft/pretrained/families/families.h"

namespace weft {

// The widths of a stack as BERT, ViT and CLIP call them.
inline EncoderShape read_encoder_shape(HfFields& f, std::string_view activation, double norm_eps) {
  EncoderShape s;
  f.size("num_hidden_layers", s.layers);
  f.size("hidden_size", s.hidden);
  f.size("num_attention_heads", s.heads);
  f.size("intermediate_size", s.ffn);
  activation_field(f, "hidden_act", s.activation, activation);
  f.number("layer_norm_eps", s.norm_eps, norm_eps);
  return s;
}

inline PatchShape read_patches(HfFields& f, int64_t image, int64_t patch) {
  PatchShape p;
  f.size("image_size", p.image, image);
  f.size("patch_size", p.patch, patch);
  f.size("num_channels", p.channels, 3);
  if (p.patch < 1 || p.image < p.patch || p.image % p.patch != 0 || p.channels < 1)
    f.refuse("patch_size", "it must divide image_size");
  return p;
}

}  // namespace weft
