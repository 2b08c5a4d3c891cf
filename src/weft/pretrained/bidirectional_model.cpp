// BidirectionalModel: passes over texts, in place of those from token to token.
#include "weft/pretrained/bidirectional_model.h"

#include <vector>

namespace weft {
namespace {

// What `read` makes of the texts' pass, with that of local layers.
auto of_pass(const TextRows& texts, auto&& read) {
  Pass pass = texts.pass();
  const Pass local = texts.local_pass();
  pass.local = &local;
  return read(pass);
}

}  // namespace

BidirectionalModel::BidirectionalModel(ForwardModel& model) : model_(model) {
  check(model.config().bidirectional, "a model that reads from token to token has another engine");
  if (const int cp = model.mesh().shape().cp; cp > 1)
    throw UsageError("--mesh cp={}: each text of such a model lies on one rank: cut by tp and pp", cp);
}

TextEncoder::Sizes BidirectionalModel::sizes() const {
  const ModelConfig& c = model_.config();
  return {c.vocab, c.context, c.hidden, c.labels};
}

TextRows BidirectionalModel::no_texts() const {
  const ModelConfig& c = model_.config();
  return {0, false, c.window > 0 ? reach_of(c.window) : 0};
}

Var BidirectionalModel::hidden(Context&, const TextRows& texts) {
  return of_pass(texts, [&](const Pass& pass) { return model_.hidden(pass); });
}

Tensor BidirectionalModel::scores(const Var& hidden, const TextRows& texts) {
  if (!model_.config().scores_texts()) throw UsageError("the model has no head of scores: it has no labels");
  if (!hidden) return {};
  std::vector<int32_t> lasts;
  for (int64_t i = 0; i < texts.num_texts(); ++i) lasts.push_back(texts.last(i));
  Context& context = *hidden.context;
  const Tensor rows = context.empty(hidden.value.dtype(), {texts.num_texts(), hidden.value.dim(1)});
  context.kernels.embedding(context.stream, rows, hidden.value, {lasts.data(), 0, hidden.value.dim(0)}, {}, nullptr);
  return model_.part().logits({rows, &context}).value;
}

Tensor BidirectionalModel::logits(const TextRows& texts) {
  return of_pass(texts, [&](const Pass& pass) { return model_.logits(pass, 0, pass.num_tokens); });
}

}  // namespace weft
