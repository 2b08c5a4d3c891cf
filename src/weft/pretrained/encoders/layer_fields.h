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

// Which layers are global, where a token of the others sees window / 2 tokens to both sides.
inline void set_reach(EncoderShape& s, int64_t window, auto&& is_global) {
  for (int64_t i = 0; i < s.layers; ++i)
    if (is_global(i)) s.global_layers.push_back(i);
  s.reach = int64_t(s.global_layers.size()) < s.layers ? window / 2 : 0;
}
constexpr int64_t kMostLocalWindow = int64_t(1) << 24;

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
