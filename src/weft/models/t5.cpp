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

T5::T5(const T5Config& c, const Partition& partition)
    : config_(c),
      heads_(partition.tensor.cut(c.heads)),
      embedding_("embedding.weight", Placement(Shape{c.vocab, c.hidden}), Init::normal(1)),
      encoder_distances_("encoder.distances.weight", Placement(Shape{c.buckets, c.heads}), Init::normal(0.02f)),
      decoder_distances_("decoder.distances.weight", Placement(Shape{c.buckets, c.heads}), Init::normal(0.02f)),
      encoder_norm_(make_norm("encoder.final_norm", c)),
      decoder_norm_(make_norm("decoder.final_norm", c)) {
  for (int64_t i = 0; i < c.encoder_layers; ++i)
    encoder_.push_back(std::make_unique<Layer>(fmt::format("encoder.layers.{}", i), c, partition, false));
  for (int64_t i = 0; i < c.decoder_layers; ++i)
    decoder_.push_back(std::make_unique<Layer>(fmt::format("decoder.layers.{}", i), c, partition, true));
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
  const Tensor bias = bias_of(context, encoder_distances_, true);
  Var x = embed(context, ids);
  for (const auto& layer : encoder_) x = (*layer)(x, {&all, 1}, bias);
  return encoder_norm_(x);
}

T5::Writing::Writing(T5& model, Context& context, const Var& memory, int64_t capacity)
    : model_(model),
      context_(context),
      distances_(model.bias_of(context, model.decoder_distances_, false)),
      capacity_(capacity) {
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
  const AttentionSpan before{.q_end = int32_t(rows), .k_end = int32_t(end), .causal = true};
  Var x = model_.embed(context_, ids);
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = *model_.decoder_[i];
    Past& past = layers_[i];
    const Var normed = layer.attention_norm(x);
    const DistanceAttention::KeysValues here = layer.attention.read(normed);
    std::memcpy(past.own.keys.slice_rows(length_, rows).raw(), here.keys.raw(), here.keys.bytes());
    std::memcpy(past.own.values.slice_rows(length_, rows).raw(), here.values.raw(), here.values.bytes());
    const DistanceAttention::KeysValues seen{past.own.keys.slice_rows(0, end), past.own.values.slice_rows(0, end)};
    x = x + layer.attention(normed, seen, {&before, 1}, distances_);
    const AttentionSpan all{.q_end = int32_t(rows), .k_end = int32_t(past.memory.keys.dim(0)), .causal = false};
    x = x + (*layer.memory_attention)((*layer.memory_norm)(x), past.memory, {&all, 1}, {});
    x = layer.feed_forward(x);
  }
  length_ = end;
  x = model_.decoder_norm_(x);
  if (model_.head_) return linear(x, {&*model_.head_}).value;
  const float shrink = 1 / std::sqrt(float(model_.config_.hidden));
  return linear(apply(context_, ScaleOp{shrink}, x), {&model_.embedding_}).value;
}

std::vector<Param*> T5::params() {
  std::vector<Param*> all{&embedding_, &encoder_distances_, &decoder_distances_};
  const auto collect = [&](Param& p) { all.push_back(&p); };
  for (const auto* stack : {&encoder_, &decoder_})
    for (const auto& layer : *stack) layer->each_param(collect);
  encoder_norm_.each_param(collect);
  decoder_norm_.each_param(collect);
  if (head_) all.push_back(&*head_);
  return all;
}

}  // namespace weft
