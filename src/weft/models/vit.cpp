// Vit: patches, layers, the class token.
#include "weft/models/vit.h"

#include "weft/tensor/host_access.h"

namespace weft {

Tensor cut_patches(Context& context, const PatchShape& s, DType dtype, std::span<const float> pixels) {
  check(int64_t(pixels.size()) == s.channels * s.image * s.image, "{} pixels, not {} x {} x {}", pixels.size(),
        s.channels, s.image, s.image);
  const Tensor wide = context.empty(DType::f32, {s.count(), s.numel()});
  fill_on_host(context.stream, wide, [&](const Tensor& host) {
    float* out = host.data<float>();
    for (int64_t row = 0; row < s.per_side(); ++row)
      for (int64_t col = 0; col < s.per_side(); ++col)
        for (int64_t c = 0; c < s.channels; ++c)
          for (int64_t y = 0; y < s.patch; ++y) {
            const int64_t line = (c * s.image + row * s.patch + y) * s.image;
            out = std::copy_n(pixels.data() + line + col * s.patch, s.patch, out);
          }
  });
  if (dtype == DType::f32) return wide;
  Tensor patches = context.empty(dtype, wide.shape());
  context.kernels.convert(context.stream, patches, wide);
  return patches;
}

PatchEmbedding::PatchEmbedding(const std::string& name, const PatchShape& shape, int64_t hidden, bool has_bias)
    : shape_(shape),
      class_token_(name + ".class_token", Placement(Shape{hidden}), Init::normal(0.02f)),
      projection_(name + ".projection", {.in = shape.numel(), .out = hidden, .has_bias = has_bias}),
      positions_(name + ".position.weight", Placement(Shape{shape.count() + 1, hidden}), Init::normal(0.02f)) {}

Var PatchEmbedding::operator()(Context& context, std::span<const float> pixels) {
  const DType dtype = positions_.value.dtype();
  const Var patches = projection_(Var{cut_patches(context, shape_, dtype, pixels), &context});
  const Tensor tokens = context.empty(dtype, positions_.shape);
  context.stream.copy(tokens.slice_rows(0, 1), class_token_.value);
  context.stream.copy(tokens.slice_rows(1, shape_.count()), patches.value);
  context.kernels.add(context.stream, tokens, tokens, positions_.value);
  return {tokens, &context};
}

Vit::Vit(const VitConfig& c, const Partition& partition, const Stages& stages)
    : config_(c),
      stages_(stages),
      embedding_("embedding", c.patches, c.encoder.hidden, true),
      encoder_("", encoder_config(c.encoder), partition, stages, 0),
      final_norm_("final_norm", Placement(Shape{c.encoder.hidden}), norm_config(encoder_config(c.encoder))),
      classifier_("classifier", {.in = c.encoder.hidden, .out = c.classes, .has_bias = true}) {}

Tensor Vit::logits(Context& context, std::span<const float> pixels) {
  const WholeSequence whole(embedding_.num_tokens(), false);
  const Var x = encoder_(context, whole.pass(), [&] { return embedding_(context, pixels); });
  if (!x) return {};
  Var y = final_norm_(x);
  y.value = y.value.slice_rows(0, 1);
  return classifier_(y).value;
}

}  // namespace weft
