// Decoder: embedding, blocks, head.
#include "weft/models/decoder.h"

#include <cmath>

#include "weft/autograd/ops/add.h"
#include "weft/autograd/ops/embedding.h"
#include "weft/autograd/recompute.h"
#include "weft/parallel/head_loss.h"

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
          .output_init_std = output_init_std(c),
          .lora = c.lora};
}

MlpConfig mlp_config(const ModelConfig& c) {
  return {.hidden = c.hidden,
          .ffn = c.ffn,
          .activation = c.activation,
          .is_gated = c.is_gated,
          .has_bias = c.bias,
          .dropout = c.dropout,
          .init_std = c.init_std,
          .output_init_std = output_init_std(c),
          .lora = c.lora};
}

MoeConfig moe_config(const ModelConfig& c) {
  MlpConfig shared = mlp_config(c);
  shared.ffn = c.shared_experts * c.expert_ffn;
  return {.gate = {.rule = {.gate = c.router, .normalises = c.norm_topk, .scale = c.routed_scale},
                   .experts = c.experts,
                   .per_token = c.experts_per_token,
                   .capacity_factor = c.capacity_factor,
                   .balance_loss = c.aux_loss,
                   .z_loss = c.z_loss},
          .has_router_bias = c.router_bias_rate > 0,
          .hidden = c.hidden,
          .ffn = c.expert_ffn,
          .shared = shared,
          .activation = c.activation,
          .is_gated = c.is_gated,
          .dropout = c.dropout,
          .init_std = c.init_std,
          .output_init_std = output_init_std(c)};
}

}  // namespace

Decoder::Block::Block(const std::string& name, int layer, const ModelConfig& c, const RopeTable* rope,
                      const Partition& partition)
    : attention_norm(name + ".attention_norm", c.norm, partition.tensor.replicated({c.hidden}), c.bias, c.norm_eps),
      attention(name + ".attention", layer, attention_config(c), rope, partition),
      mlp_norm(name + ".mlp_norm", c.norm, partition.tensor.replicated({c.hidden}), c.bias, c.norm_eps) {
  if (c.has_experts(layer))
    moe.emplace(name + ".moe", moe_config(c), partition);
  else
    mlp.emplace(name + ".mlp", mlp_config(c), partition);
}

Var Decoder::Block::operator()(const Var& x, const Pass& pass, RecomputePolicy::What recomputed) {
  using What = RecomputePolicy::What;
  const auto run = [&](auto& layer, const Var& in, What what) {
    if (!x.context->tape || recomputed != what) return layer(in, pass);
    return recompute([&layer, &pass](const Var& again) { return layer(again, pass); }, in);
  };
  const auto [residual, normed] = attention_norm.branch(x);
  const auto [sum, normed_sum] = mlp_norm.add(residual, run(attention, normed, What::attention));
  return sum + (moe ? run(*moe, normed_sum, What::mlp) : run(*mlp, normed_sum, What::mlp));
}

Decoder::Decoder(const ModelConfig& c, const Partition& partition, const DecoderPart& part, Param* embedding)
    : config_(c), partition_(partition), part_(part), embedding_dropout_site_(name_hash("embedding")) {
  if (part_.num_layers < 0) part_.num_layers = c.layers - part_.first_layer;
  Placement table(Shape{c.vocab, c.hidden});
  table.cut(0, partition_.tensor.cut(c.vocab));
  table.is_tied = c.tie_embeddings && part_.is_tied_elsewhere;
  if (part_.has_embedding) {
    embedding_.emplace("embedding.weight", table, Init::normal(c.init_std));
    if (c.position == PositionKind::learned)
      position_.emplace("position.weight", partition_.tensor.replicated_inside({c.context, c.hidden}),
                        Init::normal(c.init_std));
  }
  const RopeTable* rope = c.position == PositionKind::rope ? &rope_ : nullptr;
  for (int64_t i = part_.first_layer; i < part_.first_layer + part_.num_layers; ++i)
    blocks_.push_back(std::make_unique<Block>(fmt::format("layers.{}", i), int(i), c, rope, partition));
  if (!part_.has_head) return;
  final_norm_.emplace("final_norm", c.norm, partition_.tensor.replicated({c.hidden}), c.bias, c.norm_eps);
  tied_ = embedding_ ? &*embedding_ : embedding;
  if (!c.tie_embeddings)
    head_.emplace("head.weight", table, Init::normal(c.init_std));
  else if (!tied_)
    head_.emplace("embedding.weight", table, Init::normal(c.init_std));
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
  for (Param* param : params()) param->value = context.empty(dtype, param->shape);
  prepare(context, dtype);
}

void Decoder::prepare(Context& context, DType dtype) {
  for (RouterBias* b : router_biases()) b->allocate(context, dtype);
  const DType wide = Context::wide(dtype);
  if (config_.position != PositionKind::rope) return;
  rope_ = {context.empty(wide, {config_.context, config_.head_dim / 2}),
           context.empty(wide, {config_.context, config_.head_dim / 2})};
  if (rope_.cos.device() == Device::meta) return;
  if (wide == DType::f64)
    fill_rope<double>(rope_, config_.rope_theta, config_.head_dim);
  else
    fill_rope<float>(rope_, config_.rope_theta, config_.head_dim);
}

Var Decoder::embed(Context& context, const Pass& pass) {
  const bool is_first = partition_.tensor.rank() == 0;  // of those whose parts make the sum
  const Var x = apply(context, EmbeddingOp{*embedding_, position_ && is_first ? &*position_ : nullptr, pass.ids,
                                           pass.attention.positions, pass.num_tokens});
  return pass.dropout(partition_.tensor.leave(x), config_.dropout, embedding_dropout_site_,
                      partition_.tensor.tokens(pass.num_tokens).begin);
}

Var Decoder::forward(Context& context, const Pass& pass, const Var& in, Brackets& brackets) {
  size_t group = 0;
  Var x = in;
  if (embedding_) {
    brackets.enter(group, Var{{}, &context});
    x = brackets.leave(group++, embed(context, pass));
  }
  for (const auto& each : blocks_) {
    Block& block = *each;
    const RecomputePolicy::What what = recompute_.of(part_.first_layer + int64_t(&each - blocks_.data()));
    x = brackets.enter(group, x);
    if (context.tape && what == RecomputePolicy::What::block)
      x = recompute([&block, &pass](const Var& again) { return block(again, pass, RecomputePolicy::What::nothing); },
                    x);
    else
      x = block(x, pass, what);
    x = brackets.leave(group++, x);
  }
  if (pass.attention.cache) pass.attention.cache->advance(pass.num_tokens);
  return final_norm_ ? (*final_norm_)(brackets.enter(group, x)) : x;
}

Var Decoder::loss(Context& context, const Pass& pass, const Var& x, const int32_t* targets, float grad_scale,
                  Brackets& brackets) {
  return result(context, pass, x, brackets, [&](const TensorParallel& tensor, Param& weight, const Var& hidden) {
    return head_loss(tensor, weight, targets, grad_scale, hidden);
  });
}

Var Decoder::result(Context& context, const Pass& pass, const Var& x, Brackets& brackets, Head head) {
  const Var sum = head(partition_.tensor, head_weight(), forward(context, pass, x, brackets));
  return brackets.leave(blocks_.size() + (embedding_ ? 1 : 0), sum);
}

Var Decoder::logits(const Var& hidden) { return linear(hidden, {&head_weight()}); }

std::vector<std::vector<Param*>> Decoder::param_groups() {
  std::vector<std::vector<Param*>> groups;
  const auto collect = [&](Param& p) { groups.back().push_back(&p); };
  if (embedding_) {
    groups.emplace_back();
    collect(*embedding_);
    if (position_) collect(*position_);
  }
  for (const auto& block : blocks_) {
    groups.emplace_back();
    block->each_param(collect);
  }
  if (part_.has_head) {
    groups.emplace_back();
    final_norm_->each_param(collect);
    if (head_) collect(*head_);
  }
  return groups;
}

std::vector<RouterBias*> Decoder::router_biases() {
  std::vector<RouterBias*> all;
  for (const auto& block : blocks_)
    if (RouterBias* const bias = block->moe ? block->moe->router_bias() : nullptr) all.push_back(bias);
  return all;
}

std::vector<Param*> Decoder::params() {
  std::vector<Param*> all;
  for (const auto& group : param_groups()) all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace weft
