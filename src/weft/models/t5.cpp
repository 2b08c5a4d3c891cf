// T5: two stacks of layers.
#include "weft/models/t5.h"

#include <cmath>

#include "weft/autograd/ops/add.h"
#include "weft/autograd/ops/embedding.h"
#include "weft/autograd/ops/scale.h"

namespace weft {
namespace {

Placement whole(Shape shape) { return Placement(shape); }
Norm make_norm(const std::string& name, const T5Config& c) {
  return Norm(name, whole({c.hidden}), {.kind = NormKind::rms, .eps = c.norm_eps});
}
MlpConfig mlp_config(const T5Config& c) {
  return {.hidden = c.hidden, .ffn = c.ffn, .activation = c.activation, .is_gated = c.is_gated};
}

}  // namespace

struct T5::Layer {
  Layer(const std::string& name, const T5Config& c, bool reads_memory)
      : attention_norm(make_norm(name + ".attention_norm", c)),
        attention(name + ".attention", attention_config(c)),
        mlp_norm(make_norm(name + ".mlp_norm", c)),
        mlp(name + ".mlp", mlp_config(c), Partition{}) {
    if (!reads_memory) return;
    memory_norm.emplace(name + ".memory_norm", whole({c.hidden}),
                        NormConfig{.kind = NormKind::rms, .eps = c.norm_eps});
    memory_attention.emplace(name + ".memory_attention", attention_config(c));
  }
  static DistanceAttentionConfig attention_config(const T5Config& c) {
    return {.hidden = c.hidden, .heads = c.heads, .head_dim = c.head_dim};
  }

  Var operator()(const Var& x, std::span<const AttentionSpan> spans, const Tensor& bias, const Var& memory) {
    const Var normed = attention_norm(x);
    Var y = x + attention(normed, normed, spans, bias);
    if (memory_attention) {
      const AttentionSpan all{.q_end = int32_t(x.value.dim(0)), .k_end = int32_t(memory.value.dim(0)), .causal = false};
      y = y + (*memory_attention)((*memory_norm)(y), memory, {&all, 1}, {});
    }
    return y + mlp.inside(mlp_norm(y), Pass{});
  }
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

T5::T5(const T5Config& c)
    : config_(c),
      embedding_("embedding.weight", whole({c.vocab, c.hidden}), Init::normal(1)),
      encoder_distances_("encoder.distances.weight", whole({c.buckets, c.heads}), Init::normal(0.02f)),
      decoder_distances_("decoder.distances.weight", whole({c.buckets, c.heads}), Init::normal(0.02f)),
      encoder_norm_("encoder.final_norm", whole({c.hidden}), {.kind = NormKind::rms, .eps = c.norm_eps}),
      decoder_norm_("decoder.final_norm", whole({c.hidden}), {.kind = NormKind::rms, .eps = c.norm_eps}) {
  for (int64_t i = 0; i < c.encoder_layers; ++i)
    encoder_.push_back(std::make_unique<Layer>(fmt::format("encoder.layers.{}", i), c, false));
  for (int64_t i = 0; i < c.decoder_layers; ++i)
    decoder_.push_back(std::make_unique<Layer>(fmt::format("decoder.layers.{}", i), c, true));
  if (!c.tie_embeddings) head_.emplace("head.weight", whole({c.vocab, c.hidden}), Init::normal(0.02f));
}

T5::~T5() = default;

Var T5::embed(Context& context, std::span<const int32_t> ids) {
  return apply(context, EmbeddingOp{embedding_, nullptr, ids.data(), nullptr, int64_t(ids.size())});
}

Tensor T5::bias_of(Context& context, Param& buckets, bool is_two_sided) const {
  return spread_buckets(
      context, {.buckets = config_.buckets, .max_distance = config_.max_distance, .is_two_sided = is_two_sided},
      buckets.value);
}

Var T5::encode(Context& context, std::span<const int32_t> ids) {
  const int32_t size = int32_t(ids.size());
  const AttentionSpan all{.q_end = size, .k_end = size, .causal = false};
  const Tensor bias = bias_of(context, encoder_distances_, true);
  Var x = embed(context, ids);
  for (const auto& layer : encoder_) x = (*layer)(x, {&all, 1}, bias, {});
  return encoder_norm_(x);
}

Tensor T5::logits(Context& context, std::span<const int32_t> ids, const Var& memory) {
  const int32_t size = int32_t(ids.size());
  const AttentionSpan before{.q_end = size, .k_end = size, .causal = true};
  const Tensor bias = bias_of(context, decoder_distances_, false);
  Var x = embed(context, ids);
  for (const auto& layer : decoder_) x = (*layer)(x, {&before, 1}, bias, memory);
  x = decoder_norm_(x);
  if (head_) return linear(x, {&*head_}).value;
  const float shrink = 1 / std::sqrt(float(config_.hidden));
  return linear(apply(context, ScaleOp{shrink}, x), {&embedding_}).value;
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
