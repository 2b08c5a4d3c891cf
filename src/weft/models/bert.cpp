// Bert: embeddings of three kinds, layers, and the heads for masked tokens and for scores of texts.
#include "weft/models/bert.h"

#include "weft/autograd/ops/add.h"
#include "weft/autograd/ops/embedding.h"
#include "weft/autograd/ops/scale.h"
#include "weft/tensor/host_access.h"

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
      positions_("position.weight", Placement(Shape{c.encoder.positions, c.encoder.hidden}), Init::normal(0.02f)),
      kinds_("kind.weight", Placement(Shape{c.kinds, c.encoder.hidden}), Init::normal(0.02f)),
      embedding_norm_("embedding_norm", Placement(Shape{c.encoder.hidden}), norm_config(encoder_config(c.encoder))),
      distances_("distances.weight", Placement(Shape{c.distances.buckets, c.encoder.heads}), Init::normal(0.02f)),
      heads_(partition.tensor.cut(c.encoder.heads)),
      encoder_("", encoder_config(c.encoder), partition, stages, head_parameters(c)),
      final_norm_("final_norm", Placement(Shape{c.encoder.hidden}), norm_config(encoder_config(c.encoder))),
      transform_("transform", {.in = c.encoder.hidden, .out = c.encoder.hidden, .has_bias = c.has_transform_bias}),
      transform_norm_("transform_norm", Placement(Shape{c.encoder.hidden}), norm_config(encoder_config(c.encoder))),
      head_bias_("head.bias", Placement(Shape{c.vocab}), Init::zeros()),
      pooler_("pooler", {.in = c.encoder.hidden, .out = c.encoder.hidden, .has_bias = true}),
      score_("score", {.in = c.encoder.hidden, .out = c.labels, .has_bias = true}) {}

Var Bert::hidden(Context& context, const TextRows& texts) {
  Pass pass = texts.pass();
  const Pass local = texts.local_pass();
  pass.local = &local;
  if (has_distances())
    pass.attention.bias =
        spread_buckets(context, config_.distances, distances_.value).slice_rows(heads_.begin, heads_.count);
  const auto embed = [&] {
    Param* const table = config_.has_table() ? &positions_ : nullptr;
    Var x = apply(context, EmbeddingOp{tokens_, table, texts.ids(), texts.positions(), texts.num_rows()});
    if (config_.kinds > 0)
      x = x + apply(context, EmbeddingOp{kinds_, nullptr, texts.kinds(), texts.positions(), texts.num_rows()});
    return embedding_norm_(x);
  };
  const Var x = encoder_(context, pass, embed);
  return x && config_.has_final_norm() ? final_norm_(x) : x;
}

Tensor Bert::logits(const Var& hidden) {
  if (!config_.has_head) throw UsageError("the model was saved without its head for masked tokens: it has no logits");
  if (!hidden) return {};
  return linear(transformed(hidden), {&tokens_, &head_bias_}).value;
}

Tensor Bert::scores(const Var& hidden, const TextRows& texts) {
  if (config_.labels == 0) throw UsageError("the model was saved without a head of scores: it has no labels");
  if (!hidden) return {};
  const Var x = pooled(hidden, texts);
  return score_(config_.has_pooler ? activation(pooler_(x), config_.pooler) : transformed(x)).value;
}

Var Bert::pooled(const Var& hidden, const TextRows& texts) const {
  Context& context = *hidden.context;
  const DType dtype = hidden.value.dtype(), wide = Context::wide(dtype);
  const Tensor rows = context.empty(dtype, {texts.num_texts(), config_.encoder.hidden});
  if (!config_.scores_mean) {
    context.kernels.embedding(context.stream, rows, hidden.value, texts.firsts().data(), {}, nullptr);
    return {rows, &context};
  }
  const Tensor sums = context.empty(wide, rows.shape()), shares = context.empty(wide, {texts.num_texts(), 1});
  context.kernels.fill(context.stream, sums, 0);
  context.kernels.embedding_backward(context.stream, sums, hidden.value, texts.texts());
  fill_on_host(context.stream, shares, [&](const Tensor& host) {
    for (int64_t i = 0; i < texts.num_texts(); ++i) {
      const double share = 1 / double(texts.num_tokens(i));
      if (wide == DType::f64)
        host.data<double>()[i] = share;
      else
        host.data<float>()[i] = float(share);
    }
  });
  const Var mean = scaled_rows({sums, &context}, {shares, &context});
  if (wide == dtype) return mean;
  context.kernels.convert(context.stream, rows, mean.value);
  return {rows, &context};
}

}  // namespace weft
