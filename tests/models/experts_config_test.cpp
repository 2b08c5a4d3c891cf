// Models with experts as data: parameters counted, JSON both ways, and what is refused.
#include "weft/models/decoder.h"
#include "weft/models/model_json.h"
#include "weft/train/recipe.h"

namespace weft {
namespace {

int64_t params_of(Decoder& model) {
  int64_t sum = 0;
  for (const Param* p : model.params()) sum += p->shape.numel();
  return sum;
}

ModelConfig small() {
  ModelConfig c = family_defaults("llama");
  c.layers = 3, c.hidden = 16, c.heads = 4, c.ffn = 24, c.vocab = 50, c.context = 8;
  c.experts = 6, c.experts_per_token = 3, c.shared_experts = 2, c.expert_ffn = 10, c.first_dense_layers = 1;
  c.router = RouterGate::sigmoid, c.norm_topk = false, c.routed_scale = 2.5f, c.capacity_factor = 1.25f;
  c.aux_loss = 0.01f, c.z_loss = 0.001f, c.router_bias_rate = 0.002f;
  complete(c);
  return c;
}

TEST(ExpertsConfigTest, CountsTheParametersThatTheDecoderHas) {
  for (const char* activation : {"swiglu", "gelu"})
    for (const bool bias : {false, true})
      for (const int64_t latent : {0, 7}) {
        ModelConfig c = small();
        set_activation(c, activation), c.bias = c.expert_bias = bias, c.expert_latent_dim = latent;
        Decoder model(c);
        EXPECT_EQ(c.num_params(), params_of(model)) << activation << bias << latent;
        c.lora = {.rank = 3, .targets = kAllTargets};
        complete(c);
        Decoder adapted(c);
        EXPECT_EQ(c.num_params() + c.num_adapter_params(), params_of(adapted)) << activation << bias << latent;
      }
}

// Of what a token is multiplied with, experts' share is that of latent rows, and two projections are added.
TEST(ExpertsConfigTest, CountsTheWorkOfLatentRows) {
  const ModelConfig plain = small();
  ModelConfig latent = plain;
  latent.expert_latent_dim = 4;
  complete(latent);
  const double layers = 2, h = 16, narrow = 4, per_expert = 3 * 10, chosen = 3;
  const double less = layers * (chosen * per_expert * (h - narrow) - 2 * h * narrow);
  EXPECT_NEAR(plain.flops_per_token(8) - latent.flops_per_token(8), 6 * less, 1e-6);
  EXPECT_NEAR(plain.prompt_flops(8, 8) - latent.prompt_flops(8, 8), 2 * 8 * less, 1e-6);
}

TEST(ExpertsConfigTest, PublishedShapesHaveTheirPublishedSizes) {
  ModelConfig mixtral = preset("mixtral-8x7b"), qwen = preset("qwen3-30b-a3b");
  complete(mixtral), complete(qwen);
  EXPECT_NEAR(double(mixtral.num_params()), 46.7e9, 0.05e9);
  EXPECT_NEAR(double(qwen.num_params()), 30.5e9, 0.05e9);
  // Of a training token: six times the parameters that see it, but for the table of embeddings.
  EXPECT_NEAR(qwen.flops_per_token(1) / 6, 3.0e9, 0.1e9);
  ModelConfig super = preset("nemotron-3-super-120b-a12b");
  complete(super);
  EXPECT_NEAR(double(super.num_params()), 120.7e9, 0.05e9);
  EXPECT_NEAR(super.flops_per_token(1) / 6, 12e9, 0.5e9);
}

// Token by token a prompt costs a third of as much training; in one step the last layer and the head are left out but
// for keys and values and one row.
TEST(PromptFlopsTest, LeaveOutWhatNobodyAsksFor) {
  ModelConfig c = preset("llama-1b");
  complete(c);
  const int64_t n = 512;
  const double whole = c.flops_per_token(n) / 3 * double(n);
  EXPECT_NEAR(c.prompt_flops(n, n), whole, 1e-9 * whole);
  const double head = double(c.hidden * c.vocab);
  const double square = double(c.hidden * c.hidden), mlp = 3.0 * double(c.hidden * c.ffn);
  const double scores = 2.0 * double(c.hidden) * double(n + 1) / 2;
  const double left_out = 2 * double(n - 1) * (head + 2 * square + mlp + scores);
  EXPECT_NEAR(c.prompt_flops(n, 1), whole - left_out, 1e-9 * whole);
}

TEST(ExpertsConfigTest, SurvivesJson) {
  const ModelConfig c = small();
  const std::string text = to_json(c);
  EXPECT_EQ(to_json(parse_model_json(text, "model.json")), text);
  const ModelConfig back = parse_model_json(text, "model.json");
  EXPECT_EQ(back.router, RouterGate::sigmoid);
  EXPECT_EQ(back.capacity_factor, c.capacity_factor);
  EXPECT_EQ(back.first_dense_layers, 1);
  ModelConfig latent = c;
  latent.expert_latent_dim = 12;
  EXPECT_EQ(parse_model_json(to_json(latent), "model.json").expert_latent_dim, 12);
}

TEST(ExpertsConfigTest, RefusesImpossibleNumbers) {
  const auto refused = [](void (*change)(ModelConfig&)) {
    ModelConfig c = small();
    change(c);
    EXPECT_THROW(complete(c), UsageError);
  };
  refused([](ModelConfig& c) { c.experts_per_token = 7; });
  refused([](ModelConfig& c) { c.experts_per_token = 0; });
  refused([](ModelConfig& c) { c.aux_loss = -1; });
  refused([](ModelConfig& c) { c.routed_scale = 0; });
  refused([](ModelConfig& c) { c.expert_latent_dim = -1; });
  refused([](ModelConfig& c) { c.layers = c.experts = c.expert_ffn = int64_t(1) << 24; });  // more than 64 bits count
}

std::string refusal(const std::string& text) {
  try {
    Toml toml = Toml::parse("[model]\nlayers = 2\nhidden = 16\nheads = 2\nvocab = 64\n" + text +
                                "\n[data]\ntrain = \"x.txt\"\n[train]\nmicro_batch = 4\n",
                            "r.toml");
    read_recipe(toml);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(ExpertsConfigTest, RecipesNameWhatDoesNotFit) {
  EXPECT_EQ(refusal("experts = 8\nexperts_per_token = 2\nexpert_ffn = 32\nrouter = \"sigmoid\""), "");
  EXPECT_NE(refusal("experts_per_token = 2").find("model.experts"), std::string::npos);
  EXPECT_NE(refusal("experts = 8\nrouter = \"hash\"").find("model.router"), std::string::npos);
  EXPECT_NE(refusal("experts = 2\n[mesh]\ndp = 4\nep = 4").find("mesh.ep"), std::string::npos);
  EXPECT_NE(refusal("experts = 8\n[mesh]\ndp = 4\nep = 3").find("mesh.ep"), std::string::npos);
}

}  // namespace
}  // namespace weft
