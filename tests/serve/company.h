// A small model, requests that an engine serves side by side, and what each is answered.
#pragma once
#include <deque>

#include "serve/with_engine.h"

namespace weft {

constexpr int64_t kCompanyVocab = 40, kCompanyContext = 64;

inline ModelConfig small_config(const std::string& family = "llama") {
  ModelConfig m = family_defaults(family);
  m.layers = 2, m.hidden = 32, m.heads = 4, m.kv_heads = 2, m.ffn = 48;
  m.vocab = kCompanyVocab, m.context = kCompanyContext;
  if (family == "gpt2") m.kv_heads = 4;
  m.init_std = 0.2f;
  complete(m);
  return m;
}

inline ModelConfig expert_config() {
  ModelConfig m = small_config();
  m.experts = 4, m.experts_per_token = 2;
  complete(m);
  return m;
}

inline ModelConfig latent_expert_config() {
  ModelConfig m = expert_config();
  m.expert_ffn = 24, m.expert_latent_dim = 20, m.shared_experts = 1;
  complete(m);
  return m;
}

inline ModelConfig shared_gate_config() {
  ModelConfig m = expert_config();
  m.expert_ffn = 24, m.shared_experts = 1, m.shared_gate = true, m.norm_topk = false;
  complete(m);
  return m;
}

// Its first layer, or with three both of two, remember in a state.
inline ModelConfig state_config(int64_t attention_every = 2) {
  ModelConfig m = small_config("qwen3_5");
  m.attention_every = attention_every;
  m.state_key_heads = 2, m.state_key_dim = 8, m.state_value_dim = 6;
  m.init_std = 0.4f;  // of which some draft tokens are accepted
  complete(m);
  return m;
}

// The same with states of Mamba-2.
inline ModelConfig selective_config() {
  ModelConfig m = small_config("granitemoehybrid");
  m.attention_every = 2, m.state_key_dim = 8, m.state_value_dim = 6, m.init_std = 0.4f;
  complete(m);
  return m;
}

// Attention in chunks, layers without positions, experts in every second layer.
inline ModelConfig chunked_config(int64_t chunk = 16) {
  ModelConfig m = small_config("llama4");
  m.layers = 4, m.window = chunk, m.unrotated_query_interval = 6, m.global_every = m.unrotated_every = 2;
  m.experts = 4, m.experts_per_token = 2, m.expert_ffn = 24, m.expert_layers = {1, 2};
  complete(m);
  return m;
}

// Attention and states of Mamba-2 side by side, with factors of what their projections give.
inline ModelConfig beside_config() {
  ModelConfig m = small_config("falcon_h1");
  m.state_key_dim = 8, m.state_value_dim = 6, m.init_std = 0.4f;
  m.attention_out_scale = 0.75f, m.state_out_scale = 0.6f, m.mlp_out_scale = 1.25f, m.mlp_gate_scale = 0.8f;
  m.state_input_scales = {0.8, 1.25, 0.75, 0.5, 0.9};
  complete(m);
  return m;
}

// Layers of the delta rule that learn up to twice, with norms before their parts.
inline ModelConfig pre_norm_config() {
  ModelConfig m = small_config("olmo_hybrid");
  m.attention_every = 2, m.state_key_heads = 2, m.state_key_dim = 8, m.state_value_dim = 6, m.init_std = 0.4f;
  complete(m);
  return m;
}

// Local layers with sinks and more heads of keys behind a global one; values narrower than keys.
inline ModelConfig narrow_values_config() {
  ModelConfig m = small_config("mimo_v2_flash");
  m.layers = 3, m.window = 6, m.first_local_layer = 1, m.global_kv_heads = 1, m.value_dim = 6;
  m.global_sinks = false;
  complete(m);
  return m;
}

// States of which each row forgets at a rate of its own, before latent attention.
inline ModelConfig kimi_config() {
  ModelConfig m = small_config("kimi_linear");
  m.attention_every = 2, m.kv_heads = m.heads, m.head_dim = 12, m.kv_rank = 20, m.rotary_dim = 4, m.value_dim = 10;
  m.state_key_dim = 8, m.state_value_dim = 6, m.init_std = 0.15f;
  complete(m);
  return m;
}

// Sparse attention: rows see the five keys of their sequence that an index scores highest.
inline ModelConfig sparse_config() {
  ModelConfig m = small_config("deepseek_v32");
  m.kv_heads = m.heads, m.head_dim = 12, m.kv_rank = 20, m.query_rank = 16, m.rotary_dim = 4, m.value_dim = 10;
  m.index_heads = 6, m.index_head_dim = 8, m.index_topk = 5;
  complete(m);
  return m;
}

// The same, of whose layers the second and the third see what the first one selected.
inline ModelConfig shared_index_config() {
  ModelConfig m = sparse_config();
  m.layers = 4, m.index_layers = {0, 3};
  complete(m);
  return m;
}

// The same beside gates and sinks, by several residual streams that are mixed.
inline ModelConfig streams_config() {
  ModelConfig m = sparse_config();
  m.attention_gate = m.attention_sinks = true, m.residual_streams = 3, m.stream_mix_steps = 4;
  complete(m);
  return m;
}

// A gated convolution before a layer that attends.
inline ModelConfig conv_config() {
  ModelConfig m = small_config("lfm2");
  m.attention_every = 2, m.init_std = 0.15f;
  complete(m);
  return m;
}

// Layers of one part each.
inline ModelConfig single_config() {
  ModelConfig m = small_config("nemotron_h");
  m.layers = 4, m.mlp_layers = {1, 3}, m.state_key_dim = 8, m.state_value_dim = 6, m.init_std = 0.4f;
  complete(m);
  return m;
}

// Layers whose heads differ, and experts beside a dense part; or last layers with keys of earlier ones, and inputs.
inline ModelConfig gemma4_config(bool shares_keys) {
  ModelConfig m = small_config("gemma4");
  m.layers = 4, m.window = 6, m.global_every = 2, m.global_head_dim = 12, m.global_kv_heads = 1;
  m.global_values_are_keys = true;
  if (shares_keys)
    m.shared_kv_layers = 2, m.shared_kv_ffn = 72, m.layer_inputs = 10;
  else
    m.experts = 4, m.experts_beside_dense = true;
  complete(m);
  return m;
}

struct OnMesh {
  const char* name;
  ModelConfig config;
  MeshShape mesh;
  DType dtype = DType::f32;
};
inline void PrintTo(const OnMesh& c, std::ostream* out) { *out << c.name; }

// Requests of many lengths, many of which begin alike; every third is sampled.
inline std::vector<Request> company(size_t count) {
  std::mt19937 random(3);
  std::vector<Request> requests;
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t> prompt;
    for (int32_t t = 0; t < int32_t(i % 5) * 4; ++t) prompt.push_back(t % kCompanyVocab);
    for (size_t n = 1 + random() % 12; n > 0; --n) prompt.push_back(int32_t(random() % kCompanyVocab));
    const auto tokens = int64_t(1 + random() % 24);
    requests.push_back(i % 3 == 2 ? sampled(prompt, tokens, i) : greedy(prompt, tokens));
    if (i % 4 == 0) requests.back().logprobs = 3;
  }
  return requests;
}

struct ServedAnswer {
  std::vector<int32_t> tokens;
  std::vector<Heard::Scored> scores;
  bool operator==(const ServedAnswer&) const = default;
};
inline void PrintTo(const ServedAnswer& a, std::ostream* out) { *out << fmt::format("{}", fmt::join(a.tokens, " ")); }

// `concurrency` at a time; 0: all at once.
inline std::vector<ServedAnswer> answers_of(Engine& engine, std::vector<Request> requests, size_t concurrency = 0) {
  std::vector<ServedAnswer> answers;
  std::deque<std::future<Heard>> open;
  const auto collect = [&] {
    const Heard heard = open.front().get();
    EXPECT_EQ(heard.finish.reason, FinishReason::length) << heard.finish.error;
    answers.push_back({heard.tokens, heard.scores});
    open.pop_front();
  };
  for (Request& request : requests) {
    if (concurrency > 0 && open.size() == concurrency) collect();
    open.push_back(ask(engine, std::move(request)));
  }
  while (!open.empty()) collect();
  return answers;
}

}  // namespace weft
