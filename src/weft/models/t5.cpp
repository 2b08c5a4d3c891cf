// T5: two stacks of layers.
#include "weft/models/t5.h"

#include <cmath>
#include <cstring>

#include "weft/autograd/ops/add.h"
#include "weft/autograd/ops/embedding.h"
#include "weft/autograd/ops/scale.h"

namespace weft {
namespace {

Norm make_norm(const std::string& name, const T5Config& c) {
  return Norm(name, Placement(Shape{c.hidden}), {.kind = NormKind::rms, .eps = c.norm_eps});
}
MlpConfig mlp_config(const T5Config& c) {
  return {.hidden = c.hidden, .ffn = c.ffn, .activation = c.activation, .is_gated = c.is_gated};
}
// In parameters that a token meets; a layer is the mean of both kinds.
LayerCosts layer_costs(const T5Config& c) {
  const double attention = 4 * double(c.hidden) * double(c.heads * c.head_dim);
  const double mlp = (c.is_gated ? 3 : 2) * double(c.hidden) * double(c.ffn);
  const double of_memory = double(c.decoder_layers) / double(c.encoder_layers + c.decoder_layers);
  return {.layer = attention * (1 + of_memory) + mlp, .head = double(c.hidden) * double(c.vocab)};
}

}  // namespace

struct T5::Layer {
  Layer(const std::string& name, const T5Config& c, const Partition& partition, bool reads_memory)
      : attention_norm(make_norm(name + ".attention_norm", c)),
        attention(name + ".attention", attention_config(c), partition),
        mlp_norm(make_norm(name + ".mlp_norm", c)),
        mlp(name + ".mlp", mlp_config(c), partition) {
    if (!reads_memory) return;
    memory_norm.emplace(name + ".memory_norm", Placement(Shape{c.hidden}),
                        NormConfig{.kind = NormKind::rms, .eps = c.norm_eps});
    memory_attention.emplace(name + ".memory_attention", attention_config(c), partition);
  }
  static DistanceAttentionConfig attention_config(const T5Config& c) {
    return {.hidden = c.hidden, .heads = c.heads, .head_dim = c.head_dim};
  }

  // Of the encoder.
  Var operator()(const Var& x, std::span<const AttentionSpan> spans, const Tensor& bias) {
    const Var normed = attention_norm(x);
    return feed_forward(x + attention(normed, attention.read(normed), spans, bias));
  }
  Var feed_forward(const Var& x) { return x + mlp(mlp_norm(x), Pass{.num_tokens = x.value.dim(0)}); }
  void each_param(auto&& visit) {
    attention_norm.each_param(visit);
    attention.each_param(visit);
    if (memory_attention) memory_norm->each_param(visit), memory_attention->each_param(visit);
    mlp_norm.each_param(visit);
    mlp.each_param(visit);
  }

  Norm attention_norm;
  DistanceAttention attention;
  std::optional<Norm> memory_norm;
  std::optional<DistanceAttention> memory_attention;
  Norm mlp_norm;
  Mlp mlp;
};

T5::T5(const T5Config& c, const Partition& partition, const Stages& stages)
    : config_(c),
      stages_(stages),
      mine_(stages.layers(c.encoder_layers + c.decoder_layers, layer_costs(c))),
      heads_(partition.tensor.cut(c.heads)),
      embedding_("embedding.weight", Placement(Shape{c.vocab, c.hidden}), Init::normal(1)),
      encoder_distances_("encoder.distances.weight", Placement(Shape{c.buckets, c.heads}), Init::normal(0.02f)),
      decoder_distances_("decoder.distances.weight", Placement(Shape{c.buckets, c.heads}), Init::normal(0.02f)),
      encoder_norm_(make_norm("encoder.final_norm", c)),
      decoder_norm_(make_norm("decoder.final_norm", c)) {
  for (int64_t i = mine_.begin; i < mine_.end; ++i) {
    const bool is_decoder = i >= c.encoder_layers;
    const std::string name =
        is_decoder ? fmt::format("decoder.layers.{}", i - c.encoder_layers) : fmt::format("encoder.layers.{}", i);
    (is_decoder ? decoder_ : encoder_).push_back(std::make_unique<Layer>(name, c, partition, is_decoder));
  }
  if (!c.tie_embeddings) head_.emplace("head.weight", Placement(Shape{c.vocab, c.hidden}), Init::normal(0.02f));
}

T5::~T5() = default;

Var T5::embed(Context& context, std::span<const int32_t> ids) {
  return apply(context, EmbeddingOp{embedding_, nullptr, ids.data(), nullptr, int64_t(ids.size())});
}

Tensor T5::bias_of(Context& context, Param& buckets, bool is_two_sided) const {
  const Tensor all = spread_buckets(
      context, {.buckets = config_.buckets, .max_distance = config_.max_distance, .is_two_sided = is_two_sided},
      buckets.value);
  return all.slice_rows(heads_.begin, heads_.count);
}

Var T5::encode(Context& context, std::span<const int32_t> ids) {
  const int32_t size = int32_t(ids.size());
  const AttentionSpan all{.q_end = size, .k_end = size, .causal = false};
  Var x = stages_.is_first() ? embed(context, ids) : stages_.receive(context, {size, config_.hidden});
  const Tensor bias = encoder_.empty() ? Tensor() : bias_of(context, encoder_distances_, true);
  for (const auto& layer : encoder_) x = (*layer)(x, {&all, 1}, bias);
  if (has(config_.encoder_layers - 1)) x = encoder_norm_(x);
  stages_.send(x);  // behind the encoder's last layer, for the decoder's layers there
  return x;
}

T5::Writing::Writing(T5& model, Context& context, const Var& memory, int64_t capacity)
    : model_(model), context_(context), capacity_(capacity) {
  if (model.decoder_.empty()) return;
  distances_ = model.bias_of(context, model.decoder_distances_, false);
  const T5Config& c = model.config_;
  const Shape own{capacity, model.heads_.count, c.head_dim};
  const DType dtype = memory.value.dtype();
  for (const auto& layer : model.decoder_)
    layers_.push_back(
        {{context.empty(dtype, own), context.empty(dtype, own)}, layer->memory_attention->read(memory)});
}

Tensor T5::Writing::logits(std::span<const int32_t> ids) {
  const int64_t rows = int64_t(ids.size()), end = length_ + rows;
  check(end <= capacity_, "{} tokens, where there is room for {}", end, capacity_);
  length_ = end;
  if (model_.mine_.end <= model_.config_.encoder_layers) return {};
  const AttentionSpan before{.q_end = int32_t(rows), .k_end = int32_t(end), .causal = true};
  Var x = model_.has(model_.config_.encoder_layers) ? model_.embed(context_, ids)
                                                    : model_.stages_.receive(context_, {rows, model_.config_.hidden});
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = *model_.decoder_[i];
    Past& past = layers_[i];
    const Var normed = layer.attention_norm(x);
    const DistanceAttention::KeysValues here = layer.attention.read(normed);
    context_.stream.copy(past.own.keys.slice_rows(end - rows, rows), here.keys);
    context_.stream.copy(past.own.values.slice_rows(end - rows, rows), here.values);
    const DistanceAttention::KeysValues seen{past.own.keys.slice_rows(0, end), past.own.values.slice_rows(0, end)};
    x = x + layer.attention(normed, seen, {&before, 1}, distances_);
    const AttentionSpan all{.q_end = int32_t(rows), .k_end = int32_t(past.memory.keys.dim(0)), .causal = false};
    x = x + (*layer.memory_attention)((*layer.memory_norm)(x), past.memory, {&all, 1}, {});
    x = layer.feed_forward(x);
  }
  if (!model_.stages_.is_last()) {
    model_.stages_.send(x);
    return {};
  }
  x = model_.decoder_norm_(x);
  if (model_.head_) return linear(x, {&*model_.head_}).value;
  const float shrink = 1 / std::sqrt(float(model_.config_.hidden));
  return linear(apply(context_, ScaleOp{shrink}, x), {&model_.embedding_}).value;
}

void T5::each_param(FunctionRef<void(Param&)> visit) {
  const int64_t decoder = config_.encoder_layers;  // its first layer
  const bool is_last = stages_.is_last();
  if (stages_.is_first() || has(decoder) || (is_last && !head_)) visit(embedding_);
  if (!encoder_.empty()) visit(encoder_distances_);
  if (!decoder_.empty()) visit(decoder_distances_);
  for (const auto* stack : {&encoder_, &decoder_})
    for (const auto& layer : *stack) layer->each_param(visit);
  if (has(decoder - 1)) encoder_norm_.each_param(visit);
  if (!is_last) return;
  decoder_norm_.each_param(visit);
  if (head_) visit(*head_);
}

}  // namespace weft
