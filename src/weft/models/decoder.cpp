// Decoder: embedding, blocks, head.
#include "weft/models/decoder.h"

#include "weft/autograd/ops/beside.h"
#include "weft/autograd/ops/embedding.h"
#include "weft/autograd/ops/scale.h"
#include "weft/nn/wanted_rows.h"
#include "weft/parallel/head_loss.h"

namespace weft {
Decoder::Decoder(const ModelConfig& c, const Partition& partition, const DecoderPart& part, Param* embedding)
    : config_(c),
      partition_(partition),
      part_(part),
      embedding_dropout_site_(name_hash("embedding")),
      mtp_dropout_site_(name_hash("mtp.embedding")),
      rope_(config_) {
  if (part_.num_layers < 0) part_.num_layers = c.layers - part_.first_layer;
  Placement table(Shape{c.vocab, c.hidden});
  table.cut(0, partition_.tensor.cut(c.vocab));
  Placement embedding_table = table;
  embedding_table.is_tied = part_.is_tied_elsewhere;
  if (part_.has_embedding) {
    embedding_.emplace("embedding.weight", embedding_table, Init::normal(c.init_std));
    embedding_->readers = Param::Readers::rows;
    if (c.position == PositionKind::learned)
      position_.emplace("position.weight", partition_.tensor.replicated_inside({c.context, c.hidden}),
                        Init::normal(c.init_std));
    if (c.embedding_norm)
      embedding_norm_.emplace("embedding_norm", partition_.tensor.replicated({c.hidden}), norm_config(c));
    if (c.layer_inputs > 0)
      layer_inputs_.emplace("layer_inputs",
                            LayerInputsConfig{.layers = c.layers,
                                              .width = c.layer_inputs,
                                              .hidden = c.hidden,
                                              .vocab = c.vocab,
                                              .norm_eps = c.norm_eps,
                                              .init_std = c.init_std,
                                              .base = c.lora.base},
                            partition_);
  }
  for (int64_t i = part_.first_layer; i < part_.first_layer + part_.num_layers; ++i)
    blocks_.push_back(std::make_unique<Block>(fmt::format("layers.{}", i), int(i), c, rope_, partition));
  if (!part_.has_head) return;
  if (c.has_streams()) {
    HyperConnectionConfig streams = streams_config(c);
    streams.writes = streams.mixes = false;
    final_streams_.emplace("final_streams", streams, partition);
  }
  final_norm_.emplace("final_norm", partition_.tensor.replicated({c.hidden}), norm_config(c));
  if (!c.has_head) return;
  tied_ = embedding_ ? &*embedding_ : embedding;
  if (c.scores_texts())
    head_.emplace(std::string(kScoreName), partition_.tensor.replicated_inside({c.labels, c.hidden}),
                  Init::normal(c.init_std));
  else if (!c.tie_embeddings)
    head_.emplace("head.weight", table, Init::normal(c.init_std));
  else if (!tied_)
    head_.emplace("embedding.weight", embedding_table, Init::normal(c.init_std));
  if (c.head_bias) {
    Placement of_vocab(Shape{c.vocab});
    of_vocab.cut(0, partition_.tensor.cut(c.vocab));
    head_bias_.emplace("head.bias", of_vocab, Init::zeros());
  }
  if (c.mtp_layers > 0) {
    mtp_.emplace(c, rope_, partition);
    if (!tied_ && !c.tie_embeddings) {
      mtp_embedding_.emplace("embedding.weight", embedding_table, Init::normal(c.init_std));
      mtp_embedding_->readers = Param::Readers::rows;
    }
  }
  if (c.scores_texts()) return;  // so small that it is held as it is
  const bool is_read_by_row = !head_ || (mtp_ && !tied_ && !mtp_embedding_);
  head_weight().readers = is_read_by_row ? Param::Readers::products_and_rows : Param::Readers::products;
}

void Decoder::initialize(Context& context, uint64_t seed) {
  for (Param* param : params()) {
    const DType dtype = param->value.dtype(), wide = Context::wide(dtype);
    const Tensor initial = dtype == wide ? param->value : context.empty(wide, param->shape);
    weft::initialize(context, *param, seed, initial);
    if (dtype != wide) context.kernels.convert(context.stream, param->value, initial);
    param->value_changed();
  }
}

void Decoder::allocate(Context& context, DType dtype) {
  for (Param* param : params())
    if (!param->is_only_blocks()) param->value = context.empty(dtype, param->shape);
  prepare(context, dtype);
}

void Decoder::multiply_in_float8() {
  each_layer([](auto& layer) { layer.each_param([](Param& p) { p.in_float8 = p.is_bulk; }); });
}

void Decoder::sum_gradients_in_16_bits() {
  each_layer([](auto& layer) { layer.each_param([](Param& p) { p.has_short_grad = p.is_bulk && p.trainable; }); });
}

void Decoder::prepare(Context& context, DType dtype) {
  dtype_ = dtype;
  for (RouterBias* b : router_biases()) b->allocate(context, dtype);
  each_layer([&](auto& layer) { layer.each_norm([&](Norm& n) { n.prepare(context, dtype); }); });
  for (std::optional<Norm>* n : {&embedding_norm_, &final_norm_})
    if (*n) (*n)->prepare(context, dtype);
  rope_.prepare(context, Context::wide(dtype));
}

Var Decoder::embed(Context& context, const Pass& pass, const int32_t* ids, Param& table, Norm* norm,
                   uint64_t dropout_site) {
  const bool is_first = partition_.tensor.rank() == 0;  // of those whose parts make the sum
  Var x = apply(context, EmbeddingOp{table, position_ && is_first ? &*position_ : nullptr, ids,
                                     pass.attention.positions, pass.num_tokens, dtype_, pass.ids_are_there});
  x = partition_.tensor.leave(scaled(x, config_.embedding_scale));
  if (norm) x = (*norm)(x);
  return pass.dropout(x, config_.dropout, dropout_site, partition_.tensor.tokens(pass.num_tokens).begin);
}

Var Decoder::forward(Context& context, const Pass& pass, const Var& in, Brackets& brackets) {
  size_t group = 0;
  Residual x{in};
  rope_.prepare(context, pass);
  std::vector<Var> inputs;
  if (embedding_) {
    brackets.enter(group, Var{{}, &context});
    const Var embedded = embed(context, pass, pass.ids, *embedding_, embedding_norm_ ? &*embedding_norm_ : nullptr,
                               embedding_dropout_site_);
    if (layer_inputs_) inputs = (*layer_inputs_)(embedded, pass, dtype_);
    x = {brackets.leave(group++,
                        config_.has_streams() ? begin_streams(embedded, config_.residual_streams) : embedded)};
  }
  std::array<KeysAndValues, 2> shared;                  // of global layers, and of local ones
  std::shared_ptr<LatentAttention::Selected> selected;  // by the last layer with an index
  const WantedRows* const wanted = final_norm_ ? pass.wanted : nullptr;
  const Pass* here = &pass;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const int64_t layer = part_.first_layer + int64_t(i);
    x.last() = brackets.enter(group, x.last());
    // From here on all keys are there.
    if (wanted && layer == config_.layers - config_.shared_kv_layers)
      x = {wanted->of(x.sum())}, here = &wanted->pass();
    const bool has_wanted = here != &pass;
    const bool is_shared = config_.shares_keys(layer) || config_.gives_keys(layer);
    if (!config_.index_layers.empty() && config_.has_index(layer))
      selected = std::make_shared<LatentAttention::Selected>();
    const FromOtherLayers others{.input = inputs.empty() ? Var()
                                          : has_wanted   ? wanted->of(inputs[i])
                                                         : inputs[i],
                                 .keys = is_shared ? &shared[config_.is_local(layer)] : nullptr,
                                 .selected = selected};
    const Pass& seen = here->local && config_.is_local(layer) ? *here->local : *here;
    x = (*blocks_[i])(x, seen, recompute_.of(layer), i + 1 == blocks_.size() && !has_wanted ? wanted : nullptr,
                      others);
    x.last() = brackets.leave(group++, x.last());
  }
  if (pass.attention.cache) pass.attention.cache->advance(pass.num_tokens);
  if (!final_norm_) return x.sum();
  if (pass.wanted && blocks_.empty()) x = {pass.wanted->of(x.sum())};
  x.last() = brackets.enter(group, x.last());
  if (final_streams_) return (*final_norm_)(final_streams_->read(x.sum()).row);
  return final_norm_->branch(x)[1];
}

Decoder::Losses Decoder::losses(Context& context, const Pass& pass, const Var& x, const Targets& targets,
                                float grad_scale, Brackets& brackets) {
  const auto loss_of = [&](const Var& hidden, const int32_t* of, float scale) {
    return head_loss(partition_.tensor, head(), of, scale, scaled(hidden, config_.logit_scale));
  };
  const Var hidden = forward(context, pass, x, brackets);
  Losses losses{loss_of(hidden, targets.next, grad_scale), {}};
  if (mtp_ && targets.further) {
    const Var ahead = predict(context, pass, targets.next_ids, hidden);
    const Var further = loss_of(ahead, targets.further, grad_scale * float(config_.mtp_loss));
    losses = {apply(context, BesideOp{}, losses.next, further), further.value};
  }
  losses.next = leave_head(losses.next, brackets);
  return losses;
}

Var Decoder::result(Context& context, const Pass& pass, const Var& x, Brackets& brackets, Head make) {
  const Var hidden = scaled(forward(context, pass, x, brackets), config_.logit_scale);
  return leave_head(make(partition_, head(), hidden), brackets);
}

Var Decoder::leave_head(const Var& result, Brackets& brackets) {
  return brackets.leave(blocks_.size() + (embedding_ ? 1 : 0), result);
}

Var Decoder::logits(const Var& hidden) {
  if (!config_.has_head) throw UsageError("the model was saved without its head for tokens: it has no logits");
  if (config_.scores_texts()) return {text_scores(*hidden.context, head(), hidden.value), hidden.context};
  const Var logits = linear(scaled(hidden, config_.logit_scale), {&head_weight(), head().bias});
  return config_.logit_softcap > 0 ? apply(*hidden.context, SoftcapOp{config_.logit_softcap}, logits) : logits;
}

Var Decoder::predict(Context& context, const Pass& pass, const int32_t* next_ids, const Var& hidden) {
  check(mtp_.has_value(), "this part of the model predicts no token further on");
  rope_.prepare(context, pass);
  Param& table = tied_ ? *tied_ : mtp_embedding_ ? *mtp_embedding_ : head_weight();
  const Var embedded = embed(context, pass, next_ids, table, nullptr, mtp_dropout_site_);
  return (*mtp_)(hidden, embedded, pass, recompute_.of(config_.layers));
}

std::vector<std::vector<Param*>> Decoder::param_groups() {
  std::vector<std::vector<Param*>> groups;
  const auto collect = [&](Param& p) { groups.back().push_back(&p); };
  if (embedding_) {
    groups.emplace_back();
    collect(*embedding_);
    if (position_) collect(*position_);
    if (embedding_norm_) embedding_norm_->each_param(collect);
    if (layer_inputs_) layer_inputs_->each_param(collect);
  }
  for (const auto& block : blocks_) {
    groups.emplace_back();
    block->each_param(collect);
  }
  if (part_.has_head) {
    groups.emplace_back();
    if (final_streams_) final_streams_->each_param(collect);
    final_norm_->each_param(collect);
    if (head_) collect(*head_);
    if (head_bias_) collect(*head_bias_);
    if (mtp_embedding_) collect(*mtp_embedding_);
    if (mtp_) mtp_->each_param(collect);
  }
  return groups;
}

std::vector<RouterBias*> Decoder::router_biases() {
  std::vector<RouterBias*> all;
  each_layer([&](auto& layer) {
    if (RouterBias* const bias = layer.router_bias()) all.push_back(bias);
  });
  return all;
}

std::vector<ExpertUse*> Decoder::expert_uses() {
  std::vector<ExpertUse*> all;
  each_layer([&](auto& layer) {
    if (ExpertUse* const use = layer.expert_use()) all.push_back(use);
  });
  return all;
}

std::vector<Param*> Decoder::params() {
  std::vector<Param*> all;
  for (const auto& group : param_groups()) all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace weft
