// Decoder: embedding, blocks, head.
#include "weft/models/decoder.h"

#include <cmath>

#include "weft/autograd/ops/add.h"
#include "weft/autograd/ops/dropout.h"
#include "weft/autograd/ops/embedding.h"
#include "weft/autograd/ops/head_loss.h"
#include "weft/autograd/recompute.h"

namespace weft {
namespace {

// Projections that write into the residual stream start smaller, so that its variance does not grow with depth.
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
float output_init_std(const ModelConfig& c) { return c.init_std / std::sqrt(2.0f * float(c.layers)); }

AttentionConfig attention_config(const ModelConfig& c) {
  return {.hidden = c.hidden,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .has_bias = c.bias,
          .has_qk_norm = c.qk_norm,
          .norm_eps = c.norm_eps,
          .dropout = c.dropout,
          .init_std = c.init_std,
          .output_init_std = output_init_std(c)};
}

MlpConfig mlp_config(const ModelConfig& c) {
  return {.hidden = c.hidden,
          .ffn = c.ffn,
          .activation = c.activation,
          .is_gated = c.is_gated,
          .has_bias = c.bias,
          .dropout = c.dropout,
          .init_std = c.init_std,
          .output_init_std = output_init_std(c)};
}

}  // namespace

Decoder::Block::Block(const std::string& name, int layer, const ModelConfig& c, const RopeTable* rope)
    : attention_norm(name + ".attention_norm", c.norm, c.hidden, c.bias, c.norm_eps),
      attention(name + ".attention", layer, attention_config(c), rope),
      mlp_norm(name + ".mlp_norm", c.norm, c.hidden, c.bias, c.norm_eps),
      mlp(name + ".mlp", mlp_config(c)) {}

Var Decoder::Block::operator()(const Var& x, const Pass& pass) {
  const auto [residual, normed] = attention_norm.branch(x);
  const auto [sum, normed_sum] = mlp_norm.add(residual, attention(normed, pass));
  return sum + mlp(normed_sum, pass);
}

Decoder::Decoder(const ModelConfig& c)
    : config_(c),
      embedding_dropout_site_(name_hash("embedding")),
      embedding_("embedding.weight", {c.vocab, c.hidden}, Init::normal(c.init_std)),
      final_norm_("final_norm", c.norm, c.hidden, c.bias, c.norm_eps) {
  if (c.position == PositionKind::learned)
    position_.emplace("position.weight", Shape{c.context, c.hidden}, Init::normal(c.init_std));
  const RopeTable* rope = c.position == PositionKind::rope ? &rope_ : nullptr;
  for (int64_t i = 0; i < c.layers; ++i)
    blocks_.push_back(std::make_unique<Block>(fmt::format("layers.{}", i), int(i), c, rope));
  if (!c.tie_embeddings) head_.emplace("head.weight", Shape{c.vocab, c.hidden}, Init::normal(c.init_std));
}

namespace {

template <class T>
void fill_rope(const RopeTable& table, double theta, int64_t head_dim) {
  T* const cos = table.cos.data<T>();
  T* const sin = table.sin.data<T>();
  const int64_t half = head_dim / 2;
  for (int64_t p = 0; p < table.cos.dim(0); ++p)
    for (int64_t i = 0; i < half; ++i) {
      const double angle = double(p) * std::pow(theta, -2.0 * double(i) / double(head_dim));
      cos[p * half + i] = T(std::cos(angle));
      sin[p * half + i] = T(std::sin(angle));
    }
}

}  // namespace

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
  const DType wide = Context::wide(dtype);
  for (Param* param : params()) param->value = context.empty(dtype, param->shape);
  if (config_.position != PositionKind::rope) return;
  rope_ = {context.empty(wide, {config_.context, config_.head_dim / 2}),
           context.empty(wide, {config_.context, config_.head_dim / 2})};
  if (rope_.cos.device() == Device::meta) return;
  if (wide == DType::f64)
    fill_rope<double>(rope_, config_.rope_theta, config_.head_dim);
  else
    fill_rope<float>(rope_, config_.rope_theta, config_.head_dim);
}

Var Decoder::hidden(Context& context, const Pass& pass, Brackets& brackets) {
  Var x = apply(context, EmbeddingOp{embedding_, position_ ? &*position_ : nullptr, pass.ids,
                                     pass.attention.positions, pass.num_tokens});
  x = dropout(x, pass.dropout(config_.dropout, embedding_dropout_site_, config_.hidden));
  x = brackets.leave(0, x);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    Block& block = *blocks_[i];
    x = brackets.enter(i + 1, x);
    if (context.tape && recompute_.applies_to(int(i)))
      x = recompute([&block, &pass](const Var& in) { return block(in, pass); }, x);
    else
      x = block(x, pass);
    x = brackets.leave(i + 1, x);
  }
  if (pass.attention.cache) pass.attention.cache->advance(pass.num_tokens);
  return final_norm_(brackets.enter(blocks_.size() + 1, x));
}

Var Decoder::loss(Context& context, const Pass& pass, const int32_t* targets, float grad_scale, Brackets& brackets) {
  const Var h = hidden(context, pass, brackets);
  return apply(context, HeadLossOp{head_weight(), targets, grad_scale}, h);
}

Var Decoder::logits(const Var& hidden) { return linear(hidden, {&head_weight()}); }

std::vector<std::vector<Param*>> Decoder::param_groups() {
  std::vector<std::vector<Param*>> groups;
  const auto collect = [&](Param& p) { groups.back().push_back(&p); };
  groups.emplace_back();
  collect(embedding_);
  if (position_) collect(*position_);
  for (const auto& block : blocks_) {
    groups.emplace_back();
    block->each_param(collect);
  }
  groups.emplace_back();
  final_norm_.each_param(collect);
  if (head_) collect(*head_);
  return groups;
}

std::vector<Param*> Decoder::params() {
  std::vector<Param*> all;
  for (const auto& group : param_groups()) all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace weft
