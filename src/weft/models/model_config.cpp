// ModelConfig: completing and checking a shape, and counting what it costs.
#include "weft/models/model_config.h"

#include <algorithm>

namespace weft {
namespace {

struct NamedActivation {
  const char* name;
  Activation activation;
  bool is_gated;
};
constexpr NamedActivation kActivations[] = {
    {"swiglu", Activation::silu, true}, {"geglu", Activation::gelu_tanh, true},
    {"gelu", Activation::gelu, false},  {"gelu_tanh", Activation::gelu_tanh, false},
    {"relu", Activation::relu, false},  {"silu", Activation::silu, false},
};

void require_positive(const char* key, int64_t value) {
  if (value <= 0) throw UsageError("model.{} = {}: write a number of at least 1", key, value);
  constexpr int64_t kMost = int64_t(1) << 24;
  if (value > kMost) throw UsageError("model.{} = {}: at most {} is supported", key, value, kMost);
}

void complete_experts(ModelConfig& c) {
  if (c.experts == 0) return;
  require_positive("experts", c.experts);
  require_positive("experts_per_token", c.experts_per_token);
  if (c.experts_per_token > std::min<int64_t>(c.experts, kMostExpertsPerToken))
    throw UsageError("model.experts_per_token = {}: there are {} experts, and at most {} serve a token",
                     c.experts_per_token, c.experts, kMostExpertsPerToken);
  if (c.expert_ffn == 0) c.expert_ffn = c.ffn;
  require_positive("expert_ffn", c.expert_ffn);
  const auto not_negative = [](const char* key, double value) {
    if (!(value >= 0)) throw UsageError("model.{} = {}: write a number of at least 0", key, value);
  };
  not_negative("shared_experts", double(c.shared_experts));
  not_negative("first_dense_layers", double(c.first_dense_layers));
  not_negative("capacity_factor", double(c.capacity_factor));
  not_negative("aux_loss", double(c.aux_loss));
  not_negative("z_loss", double(c.z_loss));
  not_negative("router_bias_rate", double(c.router_bias_rate));
  if (!(c.routed_scale > 0)) throw UsageError("model.routed_scale = {}: write a number above 0", c.routed_scale);
}

void complete_adapters(ModelConfig& c) {
  if (c.lora.rank == 0) return;
  if (c.lora.rank < 0 || c.lora.rank > kMostLoraRank)
    throw UsageError("lora.rank = {}: write a number from 1 to {}", c.lora.rank, kMostLoraRank);
  if (!(c.lora.alpha > 0)) throw UsageError("lora.alpha = {}: write a number above 0", c.lora.alpha);
  if (!(c.lora.dropout >= 0 && c.lora.dropout < 1))
    throw UsageError("lora.dropout = {}: write a probability from 0 to below 1", c.lora.dropout);
  if (!c.is_gated) c.lora.targets = uint8_t(c.lora.targets & ~(1 << uint8_t(LoraTarget::gate)));
  if (c.lora.targets == 0)
    throw UsageError("lora.targets names no projection that the model has: write [\"q\", \"v\"]");
  const bool adapts_mlp = c.lora.has(LoraTarget::gate) || c.lora.has(LoraTarget::up) || c.lora.has(LoraTarget::down);
  if (c.experts > 0 && adapts_mlp)
    throw UsageError("lora.targets: experts can have no adapters yet; write some of q, k, v, o");
}

}  // namespace

void complete(ModelConfig& c) {
  require_positive("layers", c.layers);
  require_positive("hidden", c.hidden);
  require_positive("heads", c.heads);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  require_positive("kv_heads", c.kv_heads);
  if (c.head_dim == 0) {
    if (c.hidden % c.heads != 0)
      throw UsageError("model.hidden = {} does not divide by model.heads = {}: change one, or write model.head_dim",
                       c.hidden, c.heads);
    c.head_dim = c.hidden / c.heads;
  }
  require_positive("head_dim", c.head_dim);
  if (c.heads % c.kv_heads != 0)
    throw UsageError(
        "model.heads = {} does not divide by model.kv_heads = {}: every key/value head serves the same "
        "number of query heads",
        c.heads, c.kv_heads);
  if (c.position == PositionKind::rope && c.head_dim % 2 != 0)
    throw UsageError(
        "model.head_dim = {} is odd, but rotary positions turn pairs: write an even number, or "
        "model.position = \"learned\"",
        c.head_dim);
  if (c.ffn == 0) c.ffn = 4 * c.hidden;
  require_positive("ffn", c.ffn);
  require_positive("vocab", c.vocab);
  require_positive("context", c.context);
  if (c.dropout < 0 || c.dropout >= 1)
    throw UsageError("model.dropout = {}: write a probability from 0 to below 1", c.dropout);
  complete_experts(c);
  complete_adapters(c);
}

int64_t ModelConfig::num_params() const {
  const int64_t q = heads * head_dim, kv = kv_heads * head_dim;
  const int64_t matrices = is_gated ? 3 : 2;
  const auto mlp = [&](int64_t width) {
    return width == 0 ? 0 : matrices * hidden * width + (bias ? (matrices - 1) * width + hidden : 0);
  };
  int64_t block = hidden * (2 * q + 2 * kv) + 2 * hidden;
  if (bias) block += q + 2 * kv + hidden + (norm == NormKind::layer ? 2 * hidden : 0);
  if (qk_norm) block += 2 * head_dim;
  int64_t rest = vocab * hidden * (tie_embeddings ? 1 : 2) + hidden;
  if (bias && norm == NormKind::layer) rest += hidden;
  if (position == PositionKind::learned) rest += context * hidden;
  const int64_t moe = hidden * experts + experts * matrices * hidden * expert_ffn + mlp(shared_experts * expert_ffn);
  const int64_t sparse = experts > 0 ? std::max<int64_t>(layers - first_dense_layers, 0) : 0;
  return layers * block + (layers - sparse) * mlp(ffn) + sparse * moe + rest;
}

namespace {

constexpr double kPerMultiplyAdd = 2;

// Inputs and outputs of a projection that an adapter may stand beside.
int64_t inputs_and_outputs(const ModelConfig& c, LoraTarget target) {
  const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  switch (target) {
    case LoraTarget::query:
    case LoraTarget::output: return c.hidden + q;
    case LoraTarget::key:
    case LoraTarget::value: return c.hidden + kv;
    case LoraTarget::gate:
    case LoraTarget::up:
    case LoraTarget::down: return c.hidden + c.ffn;
  }
  return 0;
}

int64_t outputs(const ModelConfig& c, LoraTarget target) {
  const bool is_inwards = target != LoraTarget::output && target != LoraTarget::down;
  return is_inwards ? inputs_and_outputs(c, target) - c.hidden : c.hidden;
}

// Multiply-adds of one token in one layer's forward pass.
struct LayerWork {
  double attention, mlp;
  double scores;  // of attention: what has no weights
};
LayerWork layer_work(const ModelConfig& c, int64_t layer, int64_t seq_len) {
  const double q = double(c.heads * c.head_dim), kv = double(c.kv_heads * c.head_dim), h = double(c.hidden);
  const bool is_sparse = c.has_experts(layer);
  // With experts, only those that see the token count.
  const int64_t width = is_sparse ? (c.experts_per_token + c.shared_experts) * c.expert_ffn : c.ffn;
  // A token sees (seq_len + 1) / 2 keys on average, in two products of q multiply-adds a key.
  const double scores = 2 * q * double(seq_len + 1) / 2;
  return {h * (2 * q + 2 * kv) + scores,
          (c.is_gated ? 3 : 2) * h * double(width) + (is_sparse ? h * double(c.experts) : 0), scores};
}

}  // namespace

int64_t ModelConfig::num_adapter_params() const {
  int64_t sum = 0;
  for (const LoraTarget target : {LoraTarget::query, LoraTarget::key, LoraTarget::value, LoraTarget::output,
                                  LoraTarget::gate, LoraTarget::up, LoraTarget::down})
    if (lora.has(target))
      sum += layers * (lora.rank * inputs_and_outputs(*this, target) + (lora.is_dora ? outputs(*this, target) : 0));
  return sum;
}

double ModelConfig::flops_per_token(int64_t seq_len) const {
  double sum = double(hidden) * double(vocab), scores = 0;
  for (int64_t i = 0; i < layers; ++i) {
    const LayerWork layer = layer_work(*this, i, seq_len);
    sum += layer.attention + layer.mlp, scores += layer.scores;
  }
  constexpr double kForwardAndBackward = 3;
  double all = kForwardAndBackward * sum;
  if (lora.rank > 0) all += kForwardAndBackward * double(num_adapter_params()) - (sum - scores);
  return kPerMultiplyAdd * all;
}

double ModelConfig::recomputed_flops_per_token(int64_t seq_len, const RecomputePolicy& policy) const {
  using What = RecomputePolicy::What;
  double sum = 0;
  for (int64_t i = 0; i < layers; ++i) {
    const LayerWork layer = layer_work(*this, i, seq_len);
    const What what = policy.of(i);
    if (what == What::attention || what == What::block) sum += layer.attention;
    if (what == What::mlp || what == What::block) sum += layer.mlp;
  }
  return kPerMultiplyAdd * sum;
}

std::string router_name(const ModelConfig& config) {
  return config.router == RouterGate::softmax ? "softmax" : "sigmoid";
}

void set_router(ModelConfig& config, const std::string& name) {
  if (name != "softmax" && name != "sigmoid")
    throw UsageError("model.router = \"{}\": write one of softmax, sigmoid", name);
  config.router = name == "softmax" ? RouterGate::softmax : RouterGate::sigmoid;
}

void set_activation(ModelConfig& config, const std::string& name) {
  for (const NamedActivation& a : kActivations)
    if (name == a.name) {
      config.activation = a.activation, config.is_gated = a.is_gated;
      return;
    }
  throw UsageError("model.activation = \"{}\": write one of swiglu, geglu, gelu, gelu_tanh, relu, silu", name);
}

std::string activation_name(const ModelConfig& config) {
  for (const NamedActivation& a : kActivations)
    if (config.activation == a.activation && config.is_gated == a.is_gated) return a.name;
  return "swiglu";
}

}  // namespace weft
