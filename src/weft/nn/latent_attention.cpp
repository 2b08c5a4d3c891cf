// LatentAttention: down to the ranks, up to the heads.
#include "weft/nn/latent_attention.h"

#include "weft/autograd/ops/activation.h"
#include "weft/autograd/ops/join_heads.h"
#include "weft/autograd/ops/reshape.h"

namespace weft {
namespace {

// A projection that every rank of the tensor group computes whole.
LinearConfig shared(int64_t in, int64_t out, const LatentAttentionConfig& c, const TensorParallel& t) {
  return {.in = in,
          .out = out,
          .has_bias = c.has_down_bias,
          .init_std = c.init_std,
          .is_shared = t.size() > 1,
          .is_first_holder = t.rank() == 0,
          .base = c.lora.base};
}
// A projection to some elements of each of this rank's heads.
LinearConfig to_heads(int64_t in, int64_t per_head, const LatentAttentionConfig& c, const Cut& heads) {
  return {.in = in,
          .out = c.heads * per_head,
          .init_std = c.init_std,
          .out_cut = elements_of(heads, per_head),
          .base = c.lora.base};
}
LinearConfig from_latent(int64_t per_head, const LatentAttentionConfig& c, const Cut& heads) {
  LinearConfig config = to_heads(c.kv_rank, per_head, c, heads);
  config.is_read_by_head = true;
  return config;
}
LinearConfig from_heads(const LatentAttentionConfig& c, const Cut& heads, const TensorParallel& t) {
  return {.in = c.heads * c.value_dim,
          .out = c.hidden,
          .has_bias = c.has_output_bias,
          .init_std = c.output_init_std,
          .in_cut = elements_of(heads, c.value_dim),
          .is_first = t.rank() == 0,
          .adapter = adapter_of(c.lora, LoraTarget::output, t.size() > 1 ? &t.group() : nullptr),
          .base = c.lora.base};
}

NormConfig norm_config(const LatentAttentionConfig& c) { return {.kind = NormKind::rms, .eps = c.norm_eps}; }

}  // namespace

LatentAttention::LatentAttention(const std::string& name, int layer, const LatentAttentionConfig& c,
                                 const RopeTable* rope, const Partition& partition)
    : config_(c),
      tensor_(partition.tensor),
      heads_(tensor_.cut(c.heads)),
      layer_{.number = layer, .rule = c.rule, .dropout = c.dropout, .dropout_site = name_hash(name)},
      rope_(rope),
      output_dropout_site_(name_hash(name + ".output")),
      query_(name + ".query", to_heads(c.query_rank > 0 ? c.query_rank : c.hidden, c.head_dim, c, heads_)),
      latent_(name + ".latent", shared(c.hidden, c.kv_rank, c, tensor_)),
      key_rotary_(name + ".key_rotary", shared(c.hidden, c.rotary_dim, c, tensor_)),
      latent_norm_(name + ".latent_norm", tensor_.replicated_inside({c.kv_rank}), norm_config(c)),
      key_(name + ".key", from_latent(c.head_dim - c.rotary_dim, c, heads_)),
      value_(name + ".value", from_latent(c.value_dim, c, heads_)),
      output_(name + ".output", from_heads(c, heads_, tensor_)) {
  layer_.rule.first_head = int(heads_.begin), layer_.rule.total_heads = int(c.heads);
  if (c.index_heads > 0)
    indexer_.emplace(name + ".index",
                     IndexerConfig{.hidden = c.hidden,
                                   .query_rank = c.query_rank,
                                   .heads = c.index_heads,
                                   .head_dim = c.index_head_dim,
                                   .rotary_dim = c.rotary_dim,
                                   .most = c.index_topk,
                                   .norm_eps = c.index_norm_eps,
                                   .init_std = c.init_std,
                                   .base = c.lora.base},
                     rope, partition);
  if (c.has_sinks) sinks_.emplace(name + ".sinks", Placement(Shape{c.heads}).cut(0, heads_), Init::zeros());
  if (c.has_gate) gate_.emplace(name + ".gate", to_heads(c.hidden, c.value_dim, c, heads_));
  if (c.query_rank == 0) return;
  query_down_.emplace(name + ".query_down", shared(c.hidden, c.query_rank, c, tensor_));
  query_norm_.emplace(name + ".query_norm", tensor_.replicated_inside({c.query_rank}), norm_config(c));
}

LatentAttention::Inputs LatentAttention::project(const Var& x, const WantedRows* wanted) {
  const LinearWeights first = query_down_ ? query_down_->weights() : query_.weights();
  const auto inputs = [&](const Var& q, const Var& latent, const Var& rotary) -> Inputs {
    const Var of_query = query_down_ ? (*query_norm_)(q) : Var();
    return {query_down_ ? linear(of_query, query_.weights()) : q, latent_norm_(latent), rotary, of_query};
  };
  if (!wanted) {
    const auto [q, latent, rotary] = linears(x, first, latent_.weights(), key_rotary_.weights());
    return inputs(q, latent, rotary);
  }
  const auto [latent, rotary] = linears(x, latent_.weights(), key_rotary_.weights());
  return inputs(linear(wanted->of(x), first), latent, rotary);
}

Var LatentAttention::attend_with_heads(const Var& q, const Var& latent, const Var& rotary, const Pass& pass,
                                       const KeySelection& selection) {
  const int64_t tokens = latent.value.dim(0), heads = heads_.count;
  const auto [key, value] = linears(latent, key_.weights(), value_.weights());
  const Var k = apply(*q.context, JoinHeadsOp{}, reshape(rotary, {tokens, config_.rotary_dim}),
                      reshape(key, {tokens, heads, config_.head_dim - config_.rotary_dim}));
  return attend(layer_, pass, q, k, reshape(value, {tokens, heads, config_.value_dim}), sinks(), selection);
}

void LatentAttention::multiply_heads(Context& context, Linear& weights, const Tensor& y, const Tensor& a,
                                     bool transpose) {
  const int64_t heads = a.dim(0), rows = a.dim(1);
  if (heads == 0) return;
  const Param& weight = *weights.weights().weight;
  const int64_t of_head = weight.shape[0] / heads;
  starts_.resize(size_t(heads) + 1);
  for (int64_t h = 0; h <= heads; ++h) starts_[size_t(h)] = h * rows;
  GroupedMatmulArgs products{.y = y.reshape({heads * rows, y.dim(2)}),
                             .a = a.reshape({heads * rows, a.dim(2)}),
                             .transpose_b = !transpose,
                             .starts = starts_};
  std::vector<nf4::Layout> layouts;
  if (weight.is_nf4()) {
    for (int64_t h = 0; h < heads; ++h) layouts.push_back(weight.nf4_layout().part(h * of_head, of_head));
    products.nf4_b = {weight.value, weight.nf4_scales, &weight.nf4_layout(), layouts};
  } else {
    products.b = weight.value.reshape({heads, of_head, weight.shape[1]});
  }
  context.kernels.grouped_matmuls(context.stream, {&products, 1});
}

Var LatentAttention::attend_to_latents(const Var& q, const Var& latent, const Var& rotary, const Pass& pass,
                                       const Indexer::Index& index) {
  Context& context = *q.context;
  const Kernels& kernels = context.kernels;
  const int64_t rows = q.value.dim(0), heads = heads_.count, rank = config_.kv_rank;
  const int64_t turning = config_.rotary_dim, width = rank + turning;
  const DType dtype = q.value.dtype();
  const size_t element = size_of(dtype), query_bytes = size_t(config_.head_dim) * element;

  const Tensor own = context.empty(dtype, {heads, rows, config_.head_dim - turning});
  kernels.take_heads(context.stream, own, q.value, turning);
  const Tensor in_latent = context.empty(dtype, {heads, rows, rank});
  multiply_heads(context, key_, in_latent, own, true);
  const Tensor queries = context.empty(dtype, {rows, heads, width});
  kernels.put_heads(context.stream, queries, in_latent, 0);
  context.stream.copy_rows({queries, size_t(rank) * element, size_t(width) * element}, {q.value, 0, query_bytes},
                           rows * heads, size_t(turning) * element);

  AttentionLayer layer = layer_;
  layer.rule.values_in_keys = int(rank);
  const Var keys = apply(context, JoinHeadsOp{}, latent, rotary);
  const Tensor y = attend(layer, pass, Var{queries, &context}, keys, index.keys, sinks(), index.selection).value;

  const Tensor summed = context.empty(dtype, {heads, rows, rank});
  kernels.take_heads(context.stream, summed, y, 0);
  const Tensor by_head = context.empty(dtype, {heads, rows, config_.value_dim});
  multiply_heads(context, value_, by_head, summed, false);
  const Tensor out = context.empty(dtype, {rows, heads, config_.value_dim});
  kernels.put_heads(context.stream, out, by_head, 0);
  return {out, &context};
}

bool LatentAttention::selects(const Pass& pass) const {
  const int64_t most = config_.index_topk;
  if (most == 0) return false;
  const std::span spans(pass.attention.spans, size_t(pass.attention.num_spans));
  const auto is_long = [most](const AttentionSpan& s) { return s.k_end - s.k_begin > most; };
  if (!pass.context_plan) return std::ranges::any_of(spans, is_long);
  if (pass.seq_len > most)
    throw UsageError(
        "model.index_topk = {}: ranks that share texts (cp) do not select keys among those of each other: write "
        "shorter texts, or leave cp out",
        most);
  return false;
}

Var LatentAttention::operator()(const Var& residual, const Pass& pass, const WantedRows* wanted, Selected* selected) {
  const Pass& asked = wanted ? wanted->pass() : pass;
  const int64_t tokens = pass.num_tokens, heads = heads_.count;
  Context& context = *residual.context;
  const Var x = tensor_.enter(residual);
  const Inputs in = project(x, wanted);
  const Var queries = reshape(in.q, {asked.num_tokens, heads, config_.head_dim});
  const Var shared_keys = reshape(in.rotary, {tokens, 1, config_.rotary_dim});
  const auto [q, rotary] = rope_
                               ? apply(context, RopeOp{*rope_, {asked.attention.positions, pass.attention.positions}},
                                       queries, shared_keys)
                               : std::array{queries, shared_keys};
  const bool keeps_past = asked.attention.cache || asked.attention.paged;
  Indexer::Index index{.selection = {.most = config_.index_topk}, .keys = {}};
  if (indexer_ && (keeps_past || selects(asked))) {
    const WithoutTape untaped(context);
    index = (*indexer_)({.asked = wanted ? wanted->of(x) : x,
                         .latents = in.query_latent,
                         .all = x,
                         .asked_positions = asked.attention.positions,
                         .all_positions = pass.attention.positions});
    const std::span spans(pass.attention.spans, size_t(pass.attention.num_spans));
    if (!keeps_past) index.selection.key_bits = Indexer::mark(context, index, spans);
    if (selected) *selected = {{}, index.selection.key_bits}, index.selection.found = &selected->list;
  } else if (config_.index_topk > 0 && selected) {
    const Tensor& list = selected->list;
    index.selection.selected = wanted && list ? wanted->of(Var{list, &context}).value : list;
    index.selection.key_bits = selected->bits;
  }
  const Var y = keeps_past ? attend_to_latents(q, in.latent, rotary, asked, index)
                           : attend_with_heads(q, in.latent, rotary, asked, {.key_bits = index.selection.key_bits});
  Var attended = reshape(y, {asked.num_tokens, heads * config_.value_dim});
  if (gate_) attended = gated_activation((*gate_)(wanted ? wanted->of(x) : x), attended, Activation::sigmoid);
  const Var out = tensor_.leave(output_(attended, asked));
  return pass.dropout(out, config_.dropout, output_dropout_site_, tensor_.tokens(tokens).begin);
}

}  // namespace weft
