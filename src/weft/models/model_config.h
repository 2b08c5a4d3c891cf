// ModelConfig: the shape of a decoder, as data; a family is a set of defaults.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/kernels/kernels.h"
#include "weft/nn/lora_config.h"

namespace weft {

enum class PositionKind : uint8_t { rope, learned };

// What is forgotten in the forward pass and computed again in the backward pass.
struct RecomputePolicy {
  enum class What : uint8_t { nothing, attention, mlp, block };
  What what = What::nothing;
  int every = 1;  // of every n-th block
  What of(int64_t block) const { return block % every == 0 ? what : What::nothing; }
};

struct ModelConfig {
  std::string family = "llama";
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // 0: as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t ffn = 0;       // of dense layers
  int64_t vocab = 0;
  int64_t context = 0;  // the longest sequence; 0: the recipe's seq_len
  bool tie_embeddings = false;
  bool bias = false;  // in projections and LayerNorms
  float dropout = 0;
  NormKind norm = NormKind::rms;
  float norm_eps = 1e-5f;
  Activation activation = Activation::silu;
  bool is_gated = true;  // swiglu, geglu
  PositionKind position = PositionKind::rope;
  double rope_theta = 10000;
  bool qk_norm = false;
  float init_std = 0.02f;

  // Mixture of experts; see parallel/expert/gate.h for what the losses are.
  int64_t experts = 0;  // 0: every layer is dense
  int64_t experts_per_token = 2;
  int64_t shared_experts = 0;      // see all tokens
  int64_t expert_ffn = 0;          // of one expert; 0: ffn
  int64_t first_dense_layers = 0;  // the others have experts
  RouterGate router = RouterGate::softmax;
  bool norm_topk = true;  // the weights of a token's experts add up to routed_scale
  float routed_scale = 1;
  float capacity_factor = 0;  // in training; 0: no token is dropped
  float aux_loss = 0, z_loss = 0;
  float router_bias_rate = 0;  // 0: no bias

  LoraConfig lora;  // adapters beside the projections; where there are some, they alone are trained

  bool has_experts(int64_t layer) const { return experts > 0 && layer >= first_dense_layers; }
  int64_t num_params() const;  // without adapters
  int64_t num_adapter_params() const;
  // Model FLOPs of one training token, forward and backward, attention over `seq_len` tokens counted once where it is
  // causal; a table look-up costs none. Beside adapters, weights have no gradient. Source: Narayanan et al., 2021,
  // without recomputation.
  double flops_per_token(int64_t seq_len) const;
  // What recomputation adds to that.
  double recomputed_flops_per_token(int64_t seq_len, const RecomputePolicy& policy) const;
};

// Fills what is 0 with what the rest implies; throws UsageError naming the key that makes the shape impossible.
void complete(ModelConfig& config);

// The defaults of a family ("gpt2", "llama"); throws UsageError naming the nearest family.
ModelConfig family_defaults(const std::string& family);
// A published model's shape ("gpt2-124m", "llama-1b"); throws UsageError naming the nearest preset.
ModelConfig preset(const std::string& name);
std::vector<std::string> family_names();
std::vector<std::string> preset_names();

// "swiglu", "gelu", ...: throws UsageError naming the key and the choices.
void set_activation(ModelConfig& config, const std::string& name);
std::string activation_name(const ModelConfig& config);
// "softmax", "sigmoid"
void set_router(ModelConfig& config, const std::string& name);
std::string router_name(const ModelConfig& config);

}  // namespace weft
