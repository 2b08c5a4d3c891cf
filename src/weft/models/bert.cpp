// Bert: embeddings of three kinds, layers, and the head for masked tokens.
#include "weft/models/bert.h"

#include <numeric>

#include "weft/autograd/ops/activation.h"
#include "weft/autograd/ops/add.h"
#include "weft/autograd/ops/embedding.h"

namespace weft {
Bert::Bert(const BertConfig& c, const Partition& partition, const Stages& stages)
    : config_(c),
      stages_(stages),
      tokens_("embedding.weight", Placement(Shape{c.vocab, c.encoder.hidden}), Init::normal(0.02f)),
      positions_("position.weight", Placement(Shape{c.context, c.encoder.hidden}), Init::normal(0.02f)),
      kinds_("kind.weight", Placement(Shape{c.kinds, c.encoder.hidden}), Init::normal(0.02f)),
      embedding_norm_("embedding_norm", Placement(Shape{c.encoder.hidden}), norm_config(encoder_config(c.encoder))),
      encoder_("", encoder_config(c.encoder), partition, stages, c.has_head ? c.vocab * c.encoder.hidden : 0),
      transform_("transform", {.in = c.encoder.hidden, .out = c.encoder.hidden, .has_bias = true}),
      transform_norm_("transform_norm", Placement(Shape{c.encoder.hidden}), norm_config(encoder_config(c.encoder))),
      head_bias_("head.bias", Placement(Shape{c.vocab}), Init::zeros()) {}

Var Bert::hidden(Context& context, std::span<const int32_t> ids) {
  const int64_t tokens = int64_t(ids.size());
  const WholeSequence sequence(tokens, false);
  return encoder_(context, sequence.pass(), [&] {
    std::vector<int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<int32_t> first_kind(ids.size(), 0);
    const Var x = apply(context, EmbeddingOp{tokens_, &positions_, ids.data(), positions.data(), tokens});
    const Var kind = apply(context, EmbeddingOp{kinds_, nullptr, first_kind.data(), positions.data(), tokens});
    return embedding_norm_(x + kind);
  });
}

Tensor Bert::logits(Context& context, std::span<const int32_t> ids) {
  if (!config_.has_head) throw UsageError("the model was saved without its head for masked tokens: it has no logits");
  const Var x = hidden(context, ids);
  if (!x) return {};
  const Var y = transform_norm_(activation(transform_(x), config_.encoder.activation));
  return linear(y, {&tokens_, &head_bias_}).value;
}

}  // namespace weft
