// Gradients of every parameter of small decoders against central differences in float64, op by op and end to end.
#include "support/rank.h"
#include "weft/models/decoder.h"

namespace weft {
namespace {

struct DecoderCase {
  const char* name;
  const char* family;
  bool bias, tied, qk_norm;
  float dropout;
  const char* activation;
  int recompute_every;
  WeightGrads when;
  int64_t lora_rank = 0;  // of adapters beside every projection
  int64_t experts = 0;
  bool mtp = false;
  bool shared_keys = false;  // and inputs of layers
  int64_t expert_latent_dim = 0;
  int64_t mix_steps = 0;  // of residual streams
};

std::string case_name(const testing::TestParamInfo<DecoderCase>& info) { return info.param.name; }

class DecoderGradientTest : public testing::TestWithParam<DecoderCase> {
 protected:
  static constexpr int64_t kTokens = 11;
  const std::vector<int32_t> ids{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}, targets{1, 4, 1, 5, 9, 2, -1, 5, 3, 5, 8};
  const std::vector<int32_t> next_ids{1, 4, 1, 5, 9, 2, 2, 5, 3, 5, 8}, further{4, 1, 5, 9, 2, -1, -1, 3, 5, 8, -1};
  const std::vector<int32_t> positions{0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3};
  const std::vector<AttentionSpan> spans = causal_spans(std::vector<int32_t>{0, 7, 11});

  const std::vector<TokenRun> runs{{.begin = 0, .end = 7}, {.begin = 7, .end = 11}};
  const std::vector<TokenSpan> tokens{{.begin = 0, .count = kTokens, .first_token = 0}};

  ModelConfig config() const {
    const DecoderCase& c = GetParam();
    ModelConfig m = family_defaults(c.family);
    m.layers = 2, m.hidden = 12, m.heads = 3, m.head_dim = 4, m.ffn = 10, m.vocab = 13, m.context = 8;
    m.kv_heads = m.norm == NormKind::rms ? 1 : 3;
    m.bias = c.bias, m.tie_embeddings = c.tied, m.qk_norm = c.qk_norm, m.dropout = c.dropout;
    set_activation(m, c.activation);
    m.init_std = 0.3f;
    if (c.experts > 0) m.experts = c.experts, m.experts_per_token = 2, m.expert_ffn = 6, m.shared_experts = 1;
    m.expert_latent_dim = c.expert_latent_dim;
    if (c.lora_rank > 0)
      m.lora = {.rank = c.lora_rank, .alpha = 5, .dropout = c.dropout, .targets = lora_targets({"all-linear"})};
    if (c.mtp) m.mtp_layers = 1, m.mtp_loss = 0.7;
    if (std::string_view(c.family) == "gemma4") {
      m.layers = 4, m.window = 3, m.global_every = 2, m.global_head_dim = 6, m.global_values_are_keys = true;
      m.experts_beside_dense = c.experts > 0, m.shared_experts = 0;
      if (c.shared_keys) m.shared_kv_layers = 2, m.shared_kv_ffn = 14, m.layer_inputs = 5;
    }
    if (std::string_view(c.family) == "llama4") {
      m.layers = 4, m.window = 3, m.global_every = m.unrotated_every = 2, m.unrotated_query_interval = 2;
      m.qk_norm = m.qk_norm_turned = true;
      if (c.experts > 0) m.expert_layers = {0, 2};
    }
    if (std::string_view(c.family) == "ministral3")
      m.rope_scaling = {.kind = RopeScaling::Kind::yarn, .factor = 2, .original_context = 3, .query_beta = 0.5};
    if (m.state_beside_attention) {
      m.attention_out_scale = 0.75f, m.state_out_scale = 0.6f, m.mlp_out_scale = 1.25f, m.mlp_gate_scale = 0.8f;
      m.state_input_scales = {0.8, 1.25, 0.75, 0.5, 0.9}, m.state_norm = StateNorm::before_gate;
    }
    if (m.has_states() || m.state_beside_attention) {
      m.attention_every = 2, m.state_conv = 3;
      m.state_heads = 4, m.state_key_heads = 2, m.state_key_dim = 3, m.state_value_dim = 2;
    }
    if (m.state_rule == StateKind::kimi_delta && c.lora_rank == 0)
      m.kv_heads = 3, m.kv_rank = 5, m.rotary_dim = 2, m.value_dim = 3;
    if (std::string_view(c.family) == "minicpm3") {
      m.kv_heads = 3, m.kv_rank = 5, m.query_rank = 4, m.rotary_dim = 2, m.value_dim = 3;
      m.embedding_scale = 3, m.residual_scale = 0.6f, m.logit_scale = 0.5f;
    }
    if (std::string_view(c.name) == "embedding_norm") m.embedding_norm = true;
    if (std::string_view(c.family) == "lfm3") m.layers = 4, m.window = 3;
    if (std::string_view(c.family) == "hyperclovax") m.residual_scale = 0.6f;
    if (std::string_view(c.family) == "granite_swa")
      m.layers = 3, m.window = 3, m.global_layers = {0, 2}, m.unrotated_layers = {2};
    const bool is_hy4 = std::string_view(c.family) == "hy_v4";
    const bool shares_index = std::string_view(c.family) == "glm_moe_dsa" || is_hy4;
    if (std::string_view(c.family) == "deepseek_v32" || shares_index) {
      m.kv_heads = 3, m.kv_rank = 5, m.query_rank = 4, m.rotary_dim = 2, m.value_dim = 3;
      m.index_heads = 2, m.index_head_dim = 4, m.index_topk = 3;
      if (shares_index) m.layers = 3, m.index_layers = {0, 2};
    }
    if (is_hy4) m.residual_streams = 3, m.stream_magnitude = 1.7f, m.stream_eps = 0.01f;
    m.stream_mix_steps = c.mix_steps;
    complete(m);
    return m;
  }
  Pass pass() const {
    return {.ids = ids.data(),
            .num_tokens = kTokens,
            .attention = {.positions = positions.data(), .spans = spans.data(), .num_spans = 2},
            .runs = {runs.data(), 2},
            .is_training = true,
            .seed = 5,
            .step = 3,
            .tokens = tokens};
  }
  Decoder::Losses losses(Context& context, Decoder& model, const Pass& p, float grad_scale) {
    Brackets none;
    return model.losses(context, p, {}, {targets.data(), next_ids.data(), further.data()}, grad_scale, none);
  }
  double loss(Context& context, Decoder& model) {
    const Pass p = pass();
    const auto [next, ahead] = losses(context, model, p, 0);
    return *next.value.data<double>() + (ahead ? model.config().mtp_loss * *ahead.data<double>() : 0);
  }
  void run_backward(Context& context, Decoder& model, WeightGrads when, DType wide) {
    for (Param* p : model.params()) {
      p->grad = context.empty(wide, p->shape);
      p->clear_grad();
    }
    Tape tape(when);
    context.tape = &tape;
    const Pass p = pass();
    const Var y = losses(context, model, p, 1).next;
    const Tensor dy = context.empty_like(y.value);
    context.kernels.fill(context.stream, dy, 1);
    tape.backward(y, dy);
    tape.backward_weights();
    context.tape = nullptr;
  }
};

TEST_P(DecoderGradientTest, EqualsCentralDifferences) {
  TestRank rank(reference_kernels());
  Decoder model(config());
  if (GetParam().recompute_every > 0) model.set_recompute({RecomputePolicy::What::block, GetParam().recompute_every});
  model.allocate(rank.context, DType::f64);
  model.initialize(rank.context, 1);
  // Weights that start at one or zero must not hide mistakes.
  for (Param* p : model.params()) {
    const Tensor noise = rank.normal(DType::f64, p->shape, p->name, 0.1);
    rank.context.kernels.add(rank.context.stream, p->value, p->value, noise);
    p->value_changed();
  }
  run_backward(rank.context, model, GetParam().when, DType::f64);
  constexpr double kStep = 3e-6;
  for (Param* p : model.params()) {
    if (!p->trainable) continue;
    ASSERT_TRUE(p->has_grad()) << p->name;
    double largest = 0;
    for (int64_t i = 0; i < p->grad.numel(); ++i) largest = std::max(largest, std::abs(p->grad.data<double>()[i]));
    // A key bias shifts all scores of a row alike, which softmax does not see.
    const bool is_unseen = p->name.ends_with("key.bias") && model.config().position == PositionKind::learned;
    if (!is_unseen) {
      EXPECT_GT(largest, 1e-6) << p->name;
    }
    const int64_t stride = std::max<int64_t>(1, p->grad.numel() / 4);
    for (int64_t i = 0; i < p->grad.numel(); i += stride) {
      double& w = p->value.data<double>()[i];
      const double before = w;
      const auto loss_at = [&](double value) {
        w = value;
        p->value_changed();
        return loss(rank.context, model);
      };
      const double numeric = (loss_at(before + kStep) - loss_at(before - kStep)) / (2 * kStep);
      w = before;
      EXPECT_NEAR(p->grad.data<double>()[i], numeric, 1e-6 * std::max(1.0, largest)) << p->name << "[" << i << "]";
    }
  }
}

constexpr DecoderCase kDecoderCases[] = {
    {"llama", "llama", false, false, false, 0, "swiglu", 0, WeightGrads::now},
    {"llama_tied_qk_norm", "llama", false, true, true, 0, "swiglu", 0, WeightGrads::now},
    {"llama_recompute", "llama", false, false, true, 0.2f, "geglu", 1, WeightGrads::now},
    {"llama_recompute_later", "llama", false, false, false, 0, "swiglu", 2, WeightGrads::later},
    {"gpt2", "gpt2", true, true, false, 0, "gelu_tanh", 0, WeightGrads::now},
    {"gpt2_no_bias", "gpt2", false, true, false, 0, "gelu", 0, WeightGrads::later},
    {"gpt2_dropout", "gpt2", true, false, false, 0.3f, "relu", 0, WeightGrads::now},
    {"gpt2_dropout_recompute", "gpt2", true, true, false, 0.3f, "gelu_tanh", 1, WeightGrads::now},
    {"llama_lora", "llama", false, false, true, 0, "swiglu", 0, WeightGrads::now, 3},
    {"llama_lora_dropout_recompute", "llama", false, false, false, 0.3f, "swiglu", 1, WeightGrads::later, 2},
    {"gpt2_lora_dropout", "gpt2", true, true, false, 0.3f, "gelu_tanh", 0, WeightGrads::later, 2},
    {"experts", "llama", false, false, false, 0, "swiglu", 0, WeightGrads::now, 0, 4},
    {"experts_lora", "llama", false, false, false, 0, "swiglu", 0, WeightGrads::now, 2, 4},
    {"gpt_oss", "gpt_oss", false, false, false, 0, "swiglu_oai", 0, WeightGrads::now, 0, 4},
    {"gpt_oss_lora", "gpt_oss", false, false, false, 0, "swiglu_oai", 1, WeightGrads::later, 2, 4},
    {"llama4", "llama4", false, false, false, 0, "swiglu", 0, WeightGrads::now, 0, 4},
    {"llama4_dropout_recompute_later", "llama4", false, true, false, 0.2f, "swiglu", 1, WeightGrads::later, 0, 4},
    {"llama4_lora", "llama4", false, false, false, 0, "swiglu", 2, WeightGrads::later, 2, 4},
    {"ministral3", "ministral3", false, false, false, 0, "swiglu", 0, WeightGrads::now},
    {"hunyuan_lora", "hunyuan_v1_moe", false, false, true, 0, "swiglu", 0, WeightGrads::later, 2, 4},
    {"qwen2_moe_lora_recompute", "qwen2_moe", false, false, false, 0, "swiglu", 1, WeightGrads::later, 2, 4},
    {"qwen3_5", "qwen3_5", false, false, false, 0, "swiglu", 0, WeightGrads::now},
    {"qwen3_5_dropout_recompute_later", "qwen3_5", false, false, true, 0.2f, "swiglu", 1, WeightGrads::later},
    {"qwen3_5_lora_dropout_recompute", "qwen3_5", false, false, false, 0.3f, "swiglu", 1, WeightGrads::later, 2},
    {"qwen3_next_lora", "qwen3_next", false, false, true, 0, "swiglu", 0, WeightGrads::later, 2, 4},
    {"kimi_linear", "kimi_linear", false, false, false, 0, "swiglu", 0, WeightGrads::now},
    {"kimi_linear_dropout_recompute_later", "kimi_linear", false, false, false, 0.2f, "swiglu", 1,
     WeightGrads::later},
    {"kimi_linear_lora", "kimi_linear", false, false, false, 0, "swiglu", 0, WeightGrads::later, 2, 4},
    {"deepseek_v32", "deepseek_v32", false, false, false, 0, "swiglu", 0, WeightGrads::now},
    {"deepseek_v32_dropout_recompute_later", "deepseek_v32", false, false, false, 0.2f, "swiglu", 1,
     WeightGrads::later, 0, 4},
    {"glm_moe_dsa", "glm_moe_dsa", false, false, false, 0, "swiglu", 0, WeightGrads::now},
    {"hy_v4", "hy_v4", false, false, false, 0, "swiglu", 0, WeightGrads::now, 0, 4},
    {"hy_v4_mixed", "hy_v4", false, false, false, 0, "swiglu", 0, WeightGrads::now, 0, 0, false, false, 0, 3},
    {"hy_v4_recompute_later", "hy_v4", false, false, false, 0.2f, "swiglu", 1, WeightGrads::later},
    {"glm_moe_dsa_recompute_later", "glm_moe_dsa", false, false, false, 0.2f, "swiglu", 1, WeightGrads::later},
    {"granite_hybrid", "granitemoehybrid", false, false, false, 0, "swiglu", 0, WeightGrads::now},
    {"granite_hybrid_dropout_recompute_later", "granitemoehybrid", false, true, false, 0.2f, "swiglu", 1,
     WeightGrads::later},
    {"granite_hybrid_lora", "granitemoehybrid", false, false, false, 0, "swiglu", 0, WeightGrads::later, 2, 4},
    {"granite_swa", "granite_swa", false, false, false, 0, "swiglu", 0, WeightGrads::now},
    {"hyperclovax", "hyperclovax", false, false, false, 0, "swiglu", 0, WeightGrads::now},
    {"hyperclovax_lora_recompute_later", "hyperclovax", false, true, false, 0, "swiglu", 1, WeightGrads::later, 2},
    {"falcon_h1", "falcon_h1", false, false, false, 0, "swiglu", 0, WeightGrads::now},
    {"falcon_h1_lora_dropout_recompute", "falcon_h1", false, true, false, 0.2f, "swiglu", 1, WeightGrads::later, 2},
    {"olmo_hybrid", "olmo_hybrid", false, false, false, 0, "swiglu", 0, WeightGrads::now},
    {"lfm2", "lfm2", false, false, true, 0, "swiglu", 0, WeightGrads::now},
    {"lfm2_dropout_recompute_later", "lfm2", false, true, true, 0.2f, "swiglu", 1, WeightGrads::later},
    {"lfm2_lora", "lfm2_moe", false, false, true, 0, "swiglu", 0, WeightGrads::later, 2, 4},
    {"lfm3", "lfm3", false, true, true, 0, "swiglu", 0, WeightGrads::now},
    {"lfm3_lora_dropout_recompute_later", "lfm3", false, false, true, 0.2f, "swiglu", 1, WeightGrads::later, 2},
    {"apertus", "apertus", false, false, true, 0, "xielu", 0, WeightGrads::now},
    {"apertus_lora_dropout_recompute_later", "apertus", true, false, true, 0.2f, "xielu", 1, WeightGrads::later, 3},
    {"minicpm3_tied_recompute_later", "minicpm3", false, false, true, 0, "swiglu", 1, WeightGrads::later},
    {"nemotron_h", "nemotron_h", false, false, false, 0, "relu2", 0, WeightGrads::now},
    {"nemotron_h_dropout_recompute_later", "nemotron_h", false, false, false, 0.2f, "relu2", 1, WeightGrads::later},
    {"nemotron_h_lora", "nemotron_h", false, false, false, 0, "relu2", 2, WeightGrads::later, 2, 4},
    {"nemotron_h_latent_dropout_recompute_later", "nemotron_h", false, false, false, 0.2f, "relu2", 1,
     WeightGrads::later, 0, 4, false, false, 7},
    {"nemotron_h_latent_lora", "nemotron_h", false, false, false, 0, "relu2", 0, WeightGrads::now, 2, 4, false, false,
     7},
    {"gemma4", "gemma4", false, false, true, 0, "geglu", 0, WeightGrads::now},
    {"gemma4_experts_dropout_recompute_later", "gemma4", false, false, true, 0.2f, "geglu", 1, WeightGrads::later, 0,
     4},
    {"gemma4_lora", "gemma4", false, false, true, 0, "geglu", 0, WeightGrads::later, 2, 4},
    {"gemma4_shared", "gemma4", false, true, true, 0, "geglu", 0, WeightGrads::now, 0, 0, false, true},
    {"gemma4_shared_dropout_recompute_later", "gemma4", false, false, true, 0.2f, "geglu", 1, WeightGrads::later, 0,
     0, false, true},
    {"gemma4_shared_lora_recompute", "gemma4", false, false, true, 0, "geglu", 2, WeightGrads::now, 2, 4, false,
     true},
    {"nanochat", "nanochat", false, false, true, 0, "relu2", 0, WeightGrads::now},
    {"nanochat_mtp_dropout_recompute_later", "nanochat", false, true, true, 0.2f, "relu2", 1, WeightGrads::later, 0,
     0, true},
    {"phi", "phi", false, false, false, 0, "gelu_tanh", 0, WeightGrads::now},
    {"phi_tied_recompute_later", "phi", false, true, false, 0, "gelu_tanh", 1, WeightGrads::later},
    {"phi_lora_mtp", "phi", false, false, false, 0, "gelu_tanh", 0, WeightGrads::later, 2, 0, true},
    {"embedding_norm", "gptj", true, false, false, 0, "gelu_tanh", 0, WeightGrads::now},
    {"relu2", "nemotron", true, false, false, 0, "relu2", 0, WeightGrads::now},
    {"mtp", "llama", false, false, false, 0, "swiglu", 0, WeightGrads::now, 0, 0, true},
    {"mtp_tied_bias", "llama", true, true, true, 0, "gelu", 0, WeightGrads::now, 0, 0, true},
    {"mtp_experts_dropout_recompute_later", "llama", false, false, false, 0.2f, "swiglu", 1, WeightGrads::later, 0, 4,
     true},
    {"mtp_qwen3_5_recompute", "qwen3_5", false, false, true, 0, "swiglu", 2, WeightGrads::later, 0, 0, true},
    {"experts_lora_recompute", "llama", false, false, false, 0, "relu", 1, WeightGrads::later, 3, 4},
};
INSTANTIATE_TEST_SUITE_P(Families, DecoderGradientTest, testing::ValuesIn(kDecoderCases), case_name);

// The same bits whether activations are kept or computed again, and whether weight gradients are made at once or
// later.
TEST_P(DecoderGradientTest, RecomputationAndDeferredWeightsChangeNoBit) {
  TestRank rank(cpu_kernels(), 2);
  Decoder model(config());
  model.allocate(rank.context, DType::f32);
  model.initialize(rank.context, 1);
  run_backward(rank.context, model, WeightGrads::now, DType::f32);
  std::vector<Tensor> want;
  for (Param* p : model.params()) want.push_back(p->grad);
  for (const int every : {0, 1, 2})
    for (const WeightGrads when : {WeightGrads::now, WeightGrads::later}) {
      model.set_recompute(
          {every > 0 ? RecomputePolicy::What::block : RecomputePolicy::What::nothing, std::max(every, 1)});
      run_backward(rank.context, model, when, DType::f32);
      const auto params = model.params();
      for (size_t i = 0; i < params.size(); ++i)
        if (params[i]->trainable)
          EXPECT_EQ(std::memcmp(params[i]->grad.raw(), want[i].raw(), want[i].bytes()), 0) << params[i]->name;
    }
}

}  // namespace
}  // namespace weft
