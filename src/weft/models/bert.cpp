// Bert: embeddings of three kinds, layers, and the heads for masked tokens and for scores of texts.
#include "weft/models/bert.h"

#include "weft/autograd/ops/activation.h"
#include "weft/autograd/ops/add.h"
#include "weft/autograd/ops/embedding.h"

namespace weft {
namespace {

int64_t head_parameters(const BertConfig& c) {
  return c.has_head ? c.vocab * c.encoder.hidden : 0;  // scores are of texts, not of tokens
}

}  // namespace

Bert::Bert(const BertConfig& c, const Partition& partition, const Stages& stages)
    : config_(c),
      stages_(stages),
      tokens_("embedding.weight", Placement(Shape{c.vocab, c.encoder.hidden}), Init::normal(0.02f)),
      positions_("position.weight", Placement(Shape{c.positions, c.encoder.hidden}), Init::normal(0.02f)),
      kinds_("kind.weight", Placement(Shape{c.kinds, c.encoder.hidden}), Init::normal(0.02f)),
      embedding_norm_("embedding_norm", Placement(Shape{c.encoder.hidden}), norm_config(encoder_config(c.encoder))),
      distances_("distances.weight", Placement(Shape{c.distances.buckets, c.encoder.heads}), Init::normal(0.02f)),
      heads_(partition.tensor.cut(c.encoder.heads)),
      encoder_("", encoder_config(c.encoder), partition, stages, head_parameters(c)),
      transform_("transform", {.in = c.encoder.hidden, .out = c.encoder.hidden, .has_bias = true}),
      transform_norm_("transform_norm", Placement(Shape{c.encoder.hidden}), norm_config(encoder_config(c.encoder))),
      head_bias_("head.bias", Placement(Shape{c.vocab}), Init::zeros()),
      pooler_("pooler", {.in = c.encoder.hidden, .out = c.encoder.hidden, .has_bias = true}),
      score_("score", {.in = c.encoder.hidden, .out = c.labels, .has_bias = true}) {}

Var Bert::hidden(Context& context, const TextRows& texts) {
  Pass pass = texts.pass();
  if (has_distances())
    pass.attention.bias =
        spread_buckets(context, config_.distances, distances_.value).slice_rows(heads_.begin, heads_.count);
  return encoder_(context, pass, [&] {
    Var x = apply(context, EmbeddingOp{tokens_, &positions_, texts.ids(), texts.positions(), texts.num_rows()});
    if (config_.kinds > 0)
      x = x + apply(context, EmbeddingOp{kinds_, nullptr, texts.kinds(), texts.positions(), texts.num_rows()});
    return embedding_norm_(x);
  });
}

Tensor Bert::logits(const Var& hidden) {
  if (!config_.has_head) throw UsageError("the model was saved without its head for masked tokens: it has no logits");
  if (!hidden) return {};
  const Var y = transform_norm_(activation(transform_(hidden), config_.encoder.activation));
  return linear(y, {&tokens_, &head_bias_}).value;
}

Tensor Bert::scores(const Var& hidden, const TextRows& texts) {
  if (config_.labels == 0) throw UsageError("the model was saved without a head of scores: it has no labels");
  if (!hidden) return {};
  Context& context = *hidden.context;
  const Tensor first = context.empty(hidden.value.dtype(), {texts.num_texts(), config_.encoder.hidden});
  context.kernels.embedding(context.stream, first, hidden.value, texts.firsts().data(), {}, nullptr);
  return score_(activation(pooler_(Var{first, &context}), config_.pooler)).value;
}

}  // namespace weft
