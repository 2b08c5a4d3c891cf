// Clip: the two towers.
#include "weft/models/clip.h"

#include <algorithm>
#include <numeric>

#include "weft/autograd/ops/embedding.h"

namespace weft {
namespace {

NormConfig norm_of(const EncoderShape& s) { return norm_config(encoder_config(s)); }

}  // namespace

Clip::Clip(const ClipConfig& c, const Partition& partition, const Stages& stages)
    : config_(c),
      stages_(stages),
      tokens_("text.embedding.weight", Placement(Shape{c.vocab, c.text.hidden}), Init::normal(0.02f)),
      positions_("text.position.weight", Placement(Shape{c.context, c.text.hidden}), Init::normal(0.02f)),
      text_("text.", encoder_config(c.text), partition, stages, 0),
      text_norm_("text.final_norm", Placement(Shape{c.text.hidden}), norm_of(c.text)),
      patches_("vision.embedding", c.patches, c.vision.hidden, false),
      vision_norm_("vision.first_norm", Placement(Shape{c.vision.hidden}), norm_of(c.vision)),
      vision_("vision.", encoder_config(c.vision), partition, stages, 0),
      image_norm_("vision.final_norm", Placement(Shape{c.vision.hidden}), norm_of(c.vision)),
      text_projection_("text.projection", {.in = c.text.hidden, .out = c.projected}),
      image_projection_("vision.projection", {.in = c.vision.hidden, .out = c.projected}),
      logit_scale_("logit_scale", Placement(Shape{1}), Init::zeros()) {}

Tensor Clip::embed_text(Context& context, std::span<const int32_t> ids) {
  // The first models were published with 2 as their end of text, which is not what ends their texts.
  const auto end =
      config_.end_of_text == 2 ? std::ranges::max_element(ids) : std::ranges::find(ids, config_.end_of_text);
  if (end == ids.end())
    throw UsageError("the text lacks the token {}, at which its embedding is read: put it at the end",
                     config_.end_of_text);
  const int64_t tokens = int64_t(ids.size());
  const WholeSequence sequence(tokens, true);
  const Var x = text_(context, sequence.pass(), [&] {
    std::vector<int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    return apply(context, EmbeddingOp{tokens_, &positions_, ids.data(), positions.data(), tokens});
  });
  if (!x) return {};
  Var y = text_norm_(x);
  y.value = y.value.slice_rows(end - ids.begin(), 1);
  return text_projection_(y).value;
}

Tensor Clip::embed_image(Context& context, std::span<const float> pixels) {
  const WholeSequence sequence(patches_.num_tokens(), false);
  Var y = vision_(context, sequence.pass(), [&] { return vision_norm_(patches_(context, pixels)); });
  if (!y) return {};
  y.value = y.value.slice_rows(0, 1);
  return image_projection_(image_norm_(y)).value;
}

}  // namespace weft
