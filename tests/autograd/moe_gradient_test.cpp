// Gradients of layers of experts against central differences in float64: a whole decoder, and one layer with the
// losses that it adds.
#include "support/rank.h"
#include "weft/autograd/ops/attention.h"
#include "weft/models/decoder.h"

namespace weft {
namespace {

constexpr double kMoeStep = 1e-6;

// The gradient of `loss` with respect to w, at some places.
void expect_differences(Param* param, const std::string& name, const Tensor& w, const Tensor& gradient,
                        FunctionRef<double()> loss) {
  double largest = 0;
  for (int64_t i = 0; i < w.numel(); ++i) largest = std::max(largest, std::abs(gradient.data<double>()[i]));
  EXPECT_GT(largest, 1e-6) << name;
  const int64_t stride = std::max<int64_t>(1, w.numel() / 11);
  for (int64_t i = 0; i < w.numel(); i += stride) {
    double& element = w.data<double>()[i];
    const double before = element;
    const auto loss_at = [&](double value) {
      element = value;
      if (param) param->value_changed();
      return loss();
    };
    const double numeric = (loss_at(before + kMoeStep) - loss_at(before - kMoeStep)) / (2 * kMoeStep);
    loss_at(before);
    EXPECT_NEAR(gradient.data<double>()[i], numeric, 2e-6 * std::max(1.0, largest)) << name << "[" << i << "]";
  }
}

void give_gradient(Context& context, Param& p) {
  p.grad = context.empty(DType::f64, p.shape);
  p.clear_grad();
}

struct MoeCase {
  const char* name;
  void (*change)(ModelConfig&);
  bool recomputes = false;
  WeightGrads when = WeightGrads::now;
};
const MoeCase kMoeCases[] = {
    {"mixtral", [](ModelConfig&) {}},
    {"qwen", [](ModelConfig& m) { m.norm_topk = false, m.experts = 6, m.experts_per_token = 3, m.dropout = 0.2f; }},
    {"deepseek",
     [](ModelConfig& m) {
       m.router = RouterGate::sigmoid, m.shared_experts = 2, m.first_dense_layers = 1, m.routed_scale = 1.5f;
     }},
    {"gelu_capacity", [](ModelConfig& m) { set_activation(m, "gelu"), m.capacity_factor = 0.6f; }},
    {"idle_experts", [](ModelConfig& m) { m.experts = 40, m.experts_per_token = 1, m.norm_topk = false; }},
    {"gpt_oss",
     [](ModelConfig& m) { m.expert_bias = true, m.attention_sinks = true, m.activation = Activation::swiglu_oai; }},
    {"shared_gate", [](ModelConfig& m) { m.shared_experts = 2, m.shared_gate = true, m.norm_topk = false; }},
    {"shared_gate_recompute_later", [](ModelConfig& m) { m.shared_experts = 1, m.shared_gate = true; }, true,
     WeightGrads::later},
    {"recompute_later", [](ModelConfig& m) { m.shared_experts = 1; }, true, WeightGrads::later},
    {"weighed_inputs",
     [](ModelConfig& m) { m.router = RouterGate::sigmoid, m.norm_topk = false, m.router_weighs_inputs = true; }},
    {"weighed_latent_inputs_capacity_recompute_later",
     [](ModelConfig& m) { m.router_weighs_inputs = true, m.expert_latent_dim = 7, m.capacity_factor = 0.6f; }, true,
     WeightGrads::later},
    {"norm_behind", [](ModelConfig& m) { m.shared_experts = 1, m.expert_post_norm = true; }, true,
     WeightGrads::later},
    {"ranked_by_logits",
     [](ModelConfig& m) { m.router = RouterGate::sigmoid, m.router_bias = m.router_ranks_logits = true; }},
    {"latent", [](ModelConfig& m) { m.expert_latent_dim = 7, m.routed_scale = 1.5f; }},
    {"latent_biased_recompute_later",
     [](ModelConfig& m) { m.expert_latent_dim = 5, m.mlp_bias = m.expert_bias = true, m.shared_experts = 1; }, true,
     WeightGrads::later},
};

class MoeGradientTest : public testing::TestWithParam<MoeCase> {
 protected:
  static constexpr int64_t kTokens = 12;
  const std::vector<int32_t> ids{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}, targets{1, 4, 1, 5, 9, 2, -1, 5, 3, 5, 8, 7};
  const std::vector<int32_t> positions{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5};
  const std::vector<AttentionSpan> spans = causal_spans(std::vector<int32_t>{0, 6, 12});
  const std::vector<TokenSpan> tokens{{.begin = 0, .count = kTokens, .first_token = 24}};

  ModelConfig config() const {
    ModelConfig m = family_defaults("llama");
    m.layers = 2, m.hidden = 12, m.heads = 3, m.kv_heads = 1, m.head_dim = 4, m.ffn = 10, m.vocab = 13, m.context = 8;
    m.init_std = 0.3f;
    m.experts = 4, m.experts_per_token = 2, m.expert_ffn = 6;
    GetParam().change(m);
    complete(m);
    return m;
  }
  Pass pass() const {
    return {.ids = ids.data(),
            .num_tokens = kTokens,
            .seq_len = 6,
            .attention = {.positions = positions.data(), .spans = spans.data(), .num_spans = 2},
            .is_training = true,
            .seed = 5,
            .step = 3,
            .loss_scale = 1,
            .tokens = tokens};
  }
};
INSTANTIATE_TEST_SUITE_P(Models, MoeGradientTest, testing::ValuesIn(kMoeCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(MoeGradientTest, OfADecoderEqualsDifferences) {
  TestRank rank(reference_kernels());
  Context& context = rank.context;
  Decoder model(config());
  if (GetParam().recomputes) model.set_recompute({RecomputePolicy::What::block, 1});
  model.allocate(context, DType::f64);
  model.initialize(context, 1);
  for (Param* p : model.params()) give_gradient(context, *p);
  const Pass p = pass();
  Brackets none;
  Tape tape(GetParam().when);
  context.tape = &tape;
  const Var y = model.loss(context, p, {}, targets.data(), 1, none);
  const Tensor dy = context.empty_like(y.value);
  context.kernels.fill(context.stream, dy, 1);
  tape.backward(y, dy);
  tape.backward_weights();
  context.tape = nullptr;
  for (Param* param : model.params()) {
    ASSERT_TRUE(param->has_grad()) << param->name;
    expect_differences(param, param->name, param->value, param->grad,
                       [&] { return *model.loss(context, p, {}, targets.data(), 0, none).value.data<double>(); });
  }
}

// One layer, and the sum of what it adds to the loss: written down once more, with the part of the choices that fell
// on each expert held constant.
TEST(MoeLossesTest, GradientsEqualDifferences) {
  constexpr int64_t kTokens = 10, kSeqLen = 5, kHidden = 6, kExperts = 5, kPerToken = 2;
  for (const RouterGate gate : {RouterGate::softmax, RouterGate::sigmoid}) {
    TestRank rank(reference_kernels());
    Context& context = rank.context;
    const MoeConfig config{.gate = {.rule = {.gate = gate, .normalises = true, .scale = 1},
                                    .experts = kExperts,
                                    .per_token = kPerToken,
                                    .balance_loss = 0.7f,
                                    .z_loss = 0.2f},
                           .hidden = kHidden,
                           .ffn = 4};
    Moe moe("moe", config, {});
    std::vector<Param*> params;
    moe.each_param([&](Param& p) { params.push_back(&p); });
    for (Param* p : params) {
      p->value = rank.normal(DType::f64, p->shape, p->name, 0.5);
      p->value_changed();
      give_gradient(context, *p);
    }
    const Tensor x = rank.normal(DType::f64, {kTokens, kHidden}, "x");
    const Tensor dy = rank.normal(DType::f64, {kTokens, kHidden}, "dy");
    const std::vector<TokenSpan> tokens{{.begin = 0, .count = kTokens, .first_token = 20}};
    constexpr float kScale = 0.5f;
    const Pass pass{
        .num_tokens = kTokens, .seq_len = kSeqLen, .is_training = true, .loss_scale = kScale, .tokens = tokens};
    const auto loss = [&] {
      const Tensor y = moe(Var{x, &context}, pass).value;
      double sum = 0;
      for (int64_t i = 0; i < y.numel(); ++i) sum += y.data<double>()[i] * dy.data<double>()[i];
      const double* const router = params[0]->value.data<double>();
      for (int64_t row = 0; row < kTokens / kSeqLen; ++row) {
        std::vector<double> share(kExperts, 0), chosen(kExperts, 0);
        for (int64_t t = row * kSeqLen; t < (row + 1) * kSeqLen; ++t) {
          std::vector<double> logits(kExperts, 0), scores(kExperts);
          double exponentials = 0, total = 0;
          for (size_t e = 0; e < kExperts; ++e) {
            for (int64_t h = 0; h < kHidden; ++h)
              logits[e] += x.data<double>()[t * kHidden + h] * router[int64_t(e) * kHidden + h];
            exponentials += std::exp(logits[e]);
            scores[e] = gate == RouterGate::softmax ? std::exp(logits[e]) : 1 / (1 + std::exp(-logits[e]));
            total += scores[e];
          }
          for (size_t e = 0; e < kExperts; ++e) {
            share[e] += scores[e] / total;
            int64_t better = 0;
            for (size_t o = 0; o < kExperts; ++o) better += logits[o] > logits[e];
            chosen[e] += better < kPerToken;
          }
          sum += double(kScale * 0.2f) * std::log(exponentials) * std::log(exponentials);
        }
        for (size_t e = 0; e < kExperts; ++e)
          sum += double(kScale) * double(0.7f) * share[e] * chosen[e] * kExperts / double(kPerToken * kSeqLen);
      }
      return sum;
    };
    Tape tape;
    context.tape = &tape;
    const Var in = tape.leaf(context, x);
    const Var y = moe(in, pass);
    tape.backward(y, dy);
    context.tape = nullptr;
    expect_differences(nullptr, "x", x, tape.grad(in), loss);
    for (Param* p : params) expect_differences(p, p->name, p->value, p->grad, loss);
  }
}

}  // namespace
}  // namespace weft
