// ModelConfig: counting what a shape costs, parameters and FLOPs.
#include <algorithm>
#include <array>
#include <ranges>
#include <vector>

#include "weft/models/model_config.h"

namespace weft {
namespace {

// A sum of products of sizes, each of which may be large; what 64 bits cannot count stays at kMost.
struct Count {
  static constexpr int64_t kMost = INT64_MAX;
  Count(int64_t n) : value(n) {}
  friend Count operator+(Count a, Count b) {
    int64_t sum = 0;
    return __builtin_add_overflow(a.value, b.value, &sum) ? kMost : sum;
  }
  friend Count operator*(Count a, Count b) {
    int64_t product = 0;
    return __builtin_mul_overflow(a.value, b.value, &product) ? kMost : product;
  }
  int64_t value;
};

// With weight and bias of the norm of keys.
Count index_params(const ModelConfig& c, int64_t layer) {
  if (!c.has_index(layer)) return 0;
  return Count(c.query_rank) * c.index_heads * c.index_head_dim +
         Count(c.hidden) * (c.index_head_dim + c.index_heads) + 2 * c.index_head_dim;
}

Count attention_params(const ModelConfig& c, int64_t layer) {
  const int64_t dim = c.head_dim_of(layer), value_dim = c.values_dim(layer);
  const Count hidden = c.hidden, q = Count(c.heads) * dim, kv = Count(c.kv_heads_of(layer)) * dim;
  Count sum = Count(c.heads) * value_dim * hidden + (c.has_output_bias() ? c.hidden : 0);
  if (c.is_latent()) {
    const Count from = c.query_rank > 0 ? c.query_rank : c.hidden;
    sum = sum + from * q + (c.query_rank > 0 ? hidden * c.query_rank + c.query_rank : 0);
    if (c.has_qkv_bias()) sum = sum + c.query_rank + c.kv_rank + c.rotary_dim;
    sum = sum + (c.has_sinks(layer) ? c.heads : 0);
    sum = sum + hidden * c.heads * c.gate_dim(layer);
    return sum + hidden * (c.kv_rank + c.rotary_dim) + c.kv_rank +
           Count(c.kv_rank) * c.heads * (c.head_dim - c.rotary_dim + c.values_dim()) + index_params(c, layer);
  }
  const bool has_norms = c.has_qk_norm(layer) && c.qk_norm_weight;
  const Count values = Count(c.kv_heads_of(layer)) * value_dim, gates = Count(c.heads) * c.gate_dim(layer);
  Count all = q + (c.attention_gate_by_head ? Count(0) : gates);
  if (!c.shares_keys(layer)) all = all + kv + (c.values_are_keys(layer) ? Count(0) : values);
  sum = sum + hidden * all + (c.has_qkv_bias() ? all : 0) + (c.has_sinks(layer) ? c.heads : 0);
  if (c.attention_gate_by_head) sum = sum + hidden * gates;
  if (has_norms) sum = sum + Count(c.shares_keys(layer) ? 1 : 2) * dim;
  if (c.qk_norm_across) sum = sum + q + (c.shares_keys(layer) ? Count(0) : kv);
  return sum;
}

// Elements of queries and keys together, and of values: of a token.
Count state_keys(const ModelConfig& c) { return Count(2) * c.state_key_heads * c.state_key_dim; }
Count state_values(const ModelConfig& c) { return Count(c.state_heads) * c.state_value_dim; }
bool has_gated_conv(const ModelConfig& c) { return c.state_rule == StateKind::convolution; }

// How many numbers say how fast a token's states are forgotten.
Count num_decays(const ModelConfig& c) {
  return Count(c.state_heads) * (c.state_rule == StateKind::kimi_delta ? c.state_key_dim : 1);
}
// Of the projections to the gates of what states give, and to decays and what the delta rule learns by.
Count gate_matrices(const ModelConfig& c) {
  if (c.state_rule != StateKind::kimi_delta) return Count(c.hidden) * state_values(c);
  return Count(c.state_value_dim) * (state_values(c) + c.hidden);
}
Count rate_matrices(const ModelConfig& c) {
  const Count h = c.hidden, betas = c.has_delta_rule() ? h * c.state_heads : Count(0);
  if (c.state_rule != StateKind::kimi_delta) return h * num_decays(c) + betas;
  return Count(c.state_value_dim) * (num_decays(c) + c.hidden) + betas;
}

Count state_params(const ModelConfig& c) {
  if (has_gated_conv(c)) return Count(c.hidden) * (Count(4) * c.hidden + c.state_conv + (c.state_conv_bias ? 1 : 0));
  const Count convolved = state_keys(c) + state_values(c);
  const Count norm = c.has_delta_rule()                ? Count(c.state_value_dim)
                     : c.state_norm == StateNorm::none ? Count(0)
                                                       : state_values(c);
  const Count skips = c.has_delta_rule() ? 0 : c.state_heads;
  return Count(c.hidden) * (convolved + state_values(c)) + gate_matrices(c) + rate_matrices(c) +
         convolved * (c.state_conv + (c.state_conv_bias ? 1 : 0)) + Count(c.state_heads) + num_decays(c) + norm +
         skips;
}

// Of a part of a layer that reads and writes residual streams, and of the head, which reads.
int64_t stream_weights(const ModelConfig& c, bool writes) {
  return ((writes ? 2 : 1) + (writes && c.mixes_streams() ? c.residual_streams : 0)) * c.residual_streams;
}
Count stream_matrix(const ModelConfig& c, bool writes) {
  return c.has_streams() ? Count(stream_weights(c, writes)) * c.residual_streams * c.hidden : Count(0);
}
Count stream_params(const ModelConfig& c) {
  if (!c.has_streams()) return 0;
  const int64_t parts = 2 * c.layers;
  const int64_t scales = c.mixes_streams() ? 3 : 2;
  return (stream_matrix(c, true) + stream_weights(c, true) + scales) * parts + stream_matrix(c, false) +
         stream_weights(c, false) + 1;
}

int64_t num_block_norms(BlockKind kind) {
  return kind == BlockKind::both ? 4 : kind == BlockKind::parallel_shared || kind == BlockKind::single ? 1 : 2;
}

}  // namespace

int64_t ModelConfig::num_attending() const {
  return std::ranges::count_if(std::views::iota(int64_t(0), layers), [&](int64_t i) { return attends(i); });
}
int64_t ModelConfig::num_recurrent() const {
  return std::ranges::count_if(std::views::iota(int64_t(0), layers), [&](int64_t i) { return is_recurrent(i); });
}

int64_t ModelConfig::num_params() const {
  const int64_t matrices = is_gated ? 3 : 2;
  const Count h = hidden;
  const auto mlp = [&](Count width) -> Count {
    if (width.value == 0) return 0;
    return h * matrices * width + (has_mlp_bias() ? width * (matrices - 1) + h : 0) + (is_xielu ? 2 : 0);
  };
  const int64_t one_norm = norm_weight ? (has_norm_bias() ? 2 : 1) * hidden : 0;
  const int64_t all = layers + mtp_layers;
  const auto count_layers = [all](auto&& counts) {
    return std::ranges::count_if(std::views::iota(int64_t(0), all), counts);
  };
  const int64_t sparse = count_layers([&](int64_t i) { return has_experts(i); });
  const int64_t dense = count_layers([&](int64_t i) { return has_dense(i); });
  Count mixers = attention_params(mtp_block(), layers) * mtp_layers + state_params(*this) * num_recurrent();
  for (int64_t i = 0; i < layers; ++i)
    if (attends(i)) mixers = mixers + attention_params(*this, i);
  Count norms = Count(num_block_norms(block)) * one_norm * mtp_layers;
  for (int64_t i = 0; i < layers; ++i) norms = norms + Count(num_block_norms(block_of(i))) * one_norm;
  Count rest = h * vocab + h * (tie_embeddings || !has_head ? 0 : num_outputs()) + one_norm;
  if (position == PositionKind::learned) rest = rest + h * context;
  if (embedding_norm) rest = rest + one_norm;
  if (head_bias) rest = rest + vocab;
  Count moe =
      h * experts + Count(expert_dim()) * experts * matrices * expert_ffn + mlp(Count(shared_experts) * expert_ffn);
  if (expert_latent_dim > 0) moe = moe + h * 2 * expert_latent_dim + (has_mlp_bias() ? h + expert_latent_dim : 0);
  if (shared_gate) moe = moe + h;
  if (expert_bias) moe = moe + Count(experts) * (Count(matrices - 1) * expert_ffn + expert_dim() + 1);
  if (experts_beside_dense) moe = moe + Count(3) * one_norm + h + experts;
  if (expert_post_norm) moe = moe + one_norm;
  if (mtp_layers > 0) rest = rest + h * 2 * hidden + (bias ? hidden : 0) + Count(3) * one_norm;
  const Count wide = count_layers([&](int64_t i) { return has_dense(i) && ffn_of(i) != ffn; });
  if (layer_inputs > 0)
    rest = rest + Count(layers) * layer_inputs * (Count(vocab) + hidden) + layer_inputs +
           Count(layers) * (Count(2) * layer_inputs * hidden + one_norm);
  const Count mlps = mlp(ffn) * (dense - wide.value) + mlp(shared_kv_ffn) * wide;
  return (mixers + norms + Count(layer_scale ? 1 : 0) * all + stream_params(*this) + mlps + moe * sparse + rest)
      .value;
}

namespace {

constexpr double kPerMultiplyAdd = 2, kForwardAndBackward = 3;

// Projections of a layer that adapters may stand beside, so many of one kind.
struct Adapted {
  LoraTarget target;
  int64_t count, in, out;
};

// Of attention, of what stands in its place, or of both.
std::vector<Adapted> adapted_mixer(const ModelConfig& c, int64_t layer) {
  using enum LoraTarget;
  const int64_t h = c.hidden, q = c.heads * c.head_dim_of(layer), kv = c.kv_heads_of(layer) * c.head_dim_of(layer);
  const int64_t values_of_heads = c.heads * c.values_dim(layer), v = c.kv_heads_of(layer) * c.values_dim(layer);
  std::vector<Adapted> all;
  const auto add = [&all](std::initializer_list<Adapted> some) { all.insert(all.end(), some); };
  if (c.attends(layer))
    add({{query, 1, h, q},
         {query, c.attention_gate ? 1 : 0, h, c.heads * c.gate_dim(layer)},
         {key, c.shares_keys(layer) ? 0 : 1, h, kv},
         {value, c.values_are_keys(layer) || c.shares_keys(layer) ? 0 : 1, h, v},
         {output, 1, values_of_heads, h}});
  const int64_t keys = c.state_key_heads * c.state_key_dim, values = c.state_heads * c.state_value_dim;
  const bool is_kimi = c.state_rule == StateKind::kimi_delta;
  const int64_t decays = num_decays(c).value, from = is_kimi ? c.state_value_dim : h;
  if (c.is_recurrent(layer) && has_gated_conv(c))
    add({{state_inputs, 3, h, h}, {state_output, 1, h, h}});
  else if (c.is_recurrent(layer))
    add({{state_inputs, 2, h, keys},
         {state_inputs, 1, h, values},
         {state_gate, is_kimi ? 1 : 0, h, from},
         {state_gate, 1, from, values},
         {state_output, 1, values, h},
         {state_decay, is_kimi ? 1 : 0, h, from},
         {state_decay, 1, from, decays},
         {state_beta, 1, h, c.state_heads}});
  return all;
}

// Of one layer, of whose experts so many count.
int64_t adapter_params(const ModelConfig& c, int64_t layer, int64_t experts) {
  std::vector<Adapted> all = adapted_mixer(c, layer);
  using enum LoraTarget;
  const int64_t dense = c.has_dense(layer)     ? c.ffn_of(layer)
                        : c.has_experts(layer) ? c.shared_experts * c.expert_ffn
                                               : 0;
  const auto add_mlp = [&](std::array<LoraTarget, 3> targets, int64_t count, int64_t width, int64_t ffn) {
    for (const LoraTarget inwards : {targets[0], targets[1]}) all.push_back({inwards, count, width, ffn});
    all.push_back({targets[2], count, ffn, width});
  };
  if (dense > 0) add_mlp({gate, up, down}, 1, c.hidden, dense);
  if (c.has_experts(layer)) add_mlp({expert_gate, expert_up, expert_down}, experts, c.expert_dim(), c.expert_ffn);
  if (c.has_experts(layer) && c.expert_latent_dim > 0) {
    all.push_back({latent_down, 1, c.hidden, c.expert_latent_dim});
    all.push_back({latent_up, 1, c.expert_latent_dim, c.hidden});
  }
  if (c.has_experts(layer)) all.push_back({router, 1, c.hidden, c.experts});
  if (c.has_experts(layer) && c.shared_gate) all.push_back({shared_gate, 1, c.hidden, 1});
  int64_t sum = 0;
  for (const auto& [target, count, in, out] : all)
    if (c.lora.has(target)) sum += count * (c.lora.rank * (in + out) + (c.lora.is_dora ? out : 0));
  return sum;
}

// Multiply-adds of one token in one layer's forward pass.
struct LayerWork {
  double attention, mlp;
  double scores;  // of attention: what has no weights
  double index;   // of what selects keys, which has no backward
};

// Where texts are so long that rows do not see all of their keys.
double index_work(const ModelConfig& c, int64_t layer, int64_t seq_len) {
  if (!c.has_index(layer) || seq_len <= c.index_topk) return 0;
  const double heads = double(c.index_heads), dim = double(c.index_head_dim);
  return double(c.query_rank) * heads * dim + double(c.hidden) * (heads + dim) +
         heads * dim * (double(seq_len) + 1) / 2;
}

// Of the rule itself: a state is decayed, by the delta rule projected, learnt by and read.
double state_work(const ModelConfig& c) {
  return (c.has_delta_rule() ? 3.5 : 2.5) * double((state_values(c) * c.state_key_dim).value) +
         double(c.state_conv * (state_keys(c) + state_values(c)).value);
}

// Of a layer with states, what every row needs; biases and norms apart.
double state_inputs(const ModelConfig& c) {
  const double h = double(c.hidden);
  if (has_gated_conv(c)) return 2 * h * h + double(c.state_conv + 2) * h;
  return h * double((state_keys(c) + state_values(c)).value) + double(rate_matrices(c).value) + state_work(c);
}

// Of the matrices that make keys and values.
double key_and_value(const ModelConfig& c, int64_t layer) {
  const double h = double(c.hidden), rank = double(c.kv_rank);
  if (c.shares_keys(layer)) return 0;
  if (!c.is_latent())
    return h * double(c.kv_heads_of(layer) *
                      (c.head_dim_of(layer) + (c.values_are_keys(layer) ? 0 : c.values_dim(layer))));
  return h * (rank + double(c.rotary_dim)) + rank * double(c.heads * (c.head_dim - c.rotary_dim + c.values_dim()));
}

// What every row needs of a layer's attention, and of its states.
double key_projections(const ModelConfig& c, int64_t layer) {
  return (c.attends(layer) ? key_and_value(c, layer) : 0) + (c.is_recurrent(layer) ? state_inputs(c) : 0);
}

double projections(const ModelConfig& c, int64_t layer) {
  const double h = double(c.hidden), q = double(c.heads * c.head_dim_of(layer)), query_rank = double(c.query_rank);
  double sum = key_projections(c, layer);
  if (c.is_recurrent(layer))
    sum += has_gated_conv(c) ? 2 * h * h : double((gate_matrices(c) + state_values(c) * c.hidden).value);
  if (c.attends(layer))
    sum += (query_rank > 0 ? query_rank * (h + q) : h * q) +
           double(c.heads * (c.values_dim(layer) + c.gate_dim(layer))) * h;
  return sum;
}

// The keys that a token sees on average.
double mean_keys(const ModelConfig& c, int64_t layer, int64_t seq_len) {
  const int64_t most = c.is_local(layer) ? c.window : c.selects_keys() ? c.index_topk : seq_len;
  const double n = double(seq_len), w = double(most);
  if (c.bidirectional) return most >= seq_len ? n : w - (w * w - 1) / 4 / n;
  if (most >= seq_len) return (n + 1) / 2;
  if (!c.is_local(layer) || !c.chunked_window) return (w * (w + 1) / 2 + (n - w) * w) / n;
  const double chunks = double(seq_len / c.window), rest = double(seq_len % c.window);
  return (chunks * w * (w + 1) + rest * (rest + 1)) / 2 / n;
}

double head_work(const ModelConfig& c) {
  const int64_t outputs = c.has_head ? c.num_outputs() : 0;
  return double(c.hidden) * double(outputs) + double(stream_matrix(c, false).value);
}

LayerWork layer_work(const ModelConfig& c, int64_t layer, int64_t seq_len) {
  const int64_t dim = c.head_dim_of(layer), value_dim = c.values_dim(layer);
  const double h = double(c.hidden), scores = double(c.heads * (dim + value_dim));
  const bool is_sparse = c.has_experts(layer);
  // With experts, only those that see the token count.
  const int64_t width =
      (is_sparse ? c.shared_experts * c.expert_ffn : 0) + (c.has_dense(layer) ? c.ffn_of(layer) : 0);
  const int64_t chosen = is_sparse ? c.experts_per_token * c.expert_ffn : 0;
  const double inputs = 3 * h * double(c.layer_inputs);  // of a part of what all are made of, and its own two
  const double streams = double(stream_matrix(c, true).value);
  const double all_scores = c.attends(layer) ? scores * mean_keys(c, layer, seq_len) : 0;
  return {projections(c, layer) + all_scores + streams,
          (c.is_gated ? 3 : 2) * (h * double(width) + double(c.expert_dim()) * double(chosen)) + inputs + streams +
              (is_sparse ? h * double(c.experts + 2 * c.expert_latent_dim + (c.shared_gate ? 1 : 0)) : 0),
          all_scores, c.attends(layer) ? index_work(c, layer, seq_len) : 0};
}

}  // namespace

int64_t ModelConfig::num_adapter_params() const {
  int64_t sum = 0;
  for (int64_t i = 0; i < layers; ++i) sum += adapter_params(*this, i, experts);
  return sum;
}

double ModelConfig::flops_per_token(int64_t seq_len) const {
  double sum = head_work(*this), scores = 0, adapters = 0, indices = 0;
  for (int64_t i = 0; i < layers; ++i) {
    const LayerWork layer = layer_work(*this, i, seq_len);
    sum += layer.attention + layer.mlp, scores += layer.scores, indices += layer.index;
    adapters += double(adapter_params(*this, i, experts_per_token));
  }
  double all = kForwardAndBackward * sum;
  if (lora.rank > 0) all += kForwardAndBackward * adapters - (sum - scores);
  return kPerMultiplyAdd * (all + indices) + mtp_flops_per_token(seq_len);
}

double ModelConfig::layer_flops(int64_t layer, int64_t seq_len) const {
  const LayerWork work = layer_work(*this, layer, seq_len);
  return kPerMultiplyAdd * (kForwardAndBackward * (work.attention + work.mlp) + work.index);
}

double ModelConfig::mtp_flops_per_token(int64_t seq_len) const {
  if (mtp_layers == 0) return 0;
  const LayerWork layer = layer_work(mtp_block(), layers, seq_len);
  const double projection = 2 * double(hidden) * double(hidden), head = double(hidden) * double(vocab);
  return kPerMultiplyAdd * (kForwardAndBackward * (layer.attention + layer.mlp + projection + head) + layer.index);
}

double ModelConfig::prompt_flops(int64_t tokens, int64_t steps) const {
  double of_all = 0, of_last = head_work(*this);  // rows of a step
  for (int64_t i = 0; i < layers; ++i) {
    const LayerWork layer = layer_work(*this, i, tokens);
    const double keys = key_projections(*this, i), rest = layer.attention + layer.mlp + layer.index - keys;
    of_all += keys;
    (i < layers - std::max<int64_t>(shared_kv_layers, 1) ? of_all : of_last) += rest;
  }
  return kPerMultiplyAdd * (of_all * double(tokens) + of_last * double(steps));
}

double ModelConfig::recomputed_flops_per_token(int64_t seq_len, const RecomputePolicy& policy) const {
  using What = RecomputePolicy::What;
  const ModelConfig mtp = mtp_block();
  double sum = 0;
  for (int64_t i = 0; i < layers + mtp_layers; ++i) {
    const LayerWork layer = layer_work(i < layers ? *this : mtp, i, seq_len);
    const What what = policy.of(i);
    if (what == What::attention || what == What::block) sum += layer.attention + layer.index;
    if (what == What::mlp || what == What::block) sum += layer.mlp;
  }
  return kPerMultiplyAdd * sum;
}

}  // namespace weft
