// Layers that see or turn otherwise, whose heads differ, that share keys or have inputs: which ones they are, and
// shapes that are impossible.
#include <gtest/gtest.h>

#include "support/message_of.h"
#include "weft/base/error.h"
#include "weft/models/model_config.h"

namespace weft {
namespace {

// Layers 0 and 1 are local, 2 is global, and so on.
ModelConfig gemma4() {
  ModelConfig c = family_defaults("gemma4");
  c.layers = 9, c.hidden = 32, c.heads = 4, c.kv_heads = 2, c.ffn = 48, c.vocab = 61, c.context = 16;
  c.window = 4, c.global_every = 3, c.global_head_dim = 16, c.global_kv_heads = 1;
  return c;
}

TEST(LayersThatDifferTest, GlobalLayersHaveHeadsOfTheirOwn) {
  ModelConfig c = gemma4();
  c.global_values_are_keys = true;
  complete(c);
  for (int64_t i = 0; i < c.layers; ++i) {
    const bool is_global = i % 3 == 2;
    EXPECT_EQ(c.head_dim_of(i), is_global ? 16 : 8) << i;
    EXPECT_EQ(c.kv_heads_of(i), is_global ? 1 : 2) << i;
    EXPECT_EQ(c.values_are_keys(i), is_global) << i;
  }
  // Of queries, keys and values, the projection back, and norms of queries and keys: of six local layers and three
  // others.
  const int64_t local = 32 * (32 + 2 * 16) + 32 * 32 + 2 * 8, global = 32 * (64 + 16) + 64 * 32 + 2 * 16;
  const int64_t rest = 3 * 32 * 48 + 4 * 32 + 1;
  EXPECT_EQ(c.num_params(), 6 * local + 3 * global + 9 * rest + 61 * 32 + 32);
  c.window = 0;
  complete(c);
  EXPECT_EQ(c.head_dim_of(2), 8);
  EXPECT_FALSE(c.values_are_keys(2));
}

TEST(LayersThatDifferTest, LastLayersAttendToKeysOfTheirKind) {
  ModelConfig c = gemma4();
  ModelConfig plain = c;
  complete(plain);
  c.shared_kv_layers = 5, c.shared_kv_ffn = 64;
  complete(c);
  constexpr int64_t kKeysOf[] = {0, 1, 2, 3, 3, 2, 3, 3, 2};
  for (int64_t i = 0; i < c.layers; ++i) {
    EXPECT_EQ(c.keys_of(i), kKeysOf[i]) << i;
    EXPECT_EQ(c.shares_keys(i), i >= 4) << i;
    EXPECT_EQ(c.gives_keys(i), i == 2 || i == 3) << i;
    EXPECT_EQ(c.ffn_of(i), i >= 4 ? 64 : 48) << i;
  }
  // Keys and values with their norms of three local layers and two others.
  const int64_t keys = 3 * (32 * 2 * 16 + 8) + 2 * (32 * 2 * 16 + 16), wider = 5 * 3 * 32 * (64 - 48);
  EXPECT_EQ(c.num_params(), plain.num_params() - keys + wider);
  ModelConfig all = gemma4();
  all.ffn = 64;
  complete(all);
  EXPECT_LT(c.flops_per_token(16), all.flops_per_token(16));
}

TEST(LayersThatDifferTest, LayersAreToldByNumber) {
  ModelConfig c = family_defaults("llama");
  c.layers = 5, c.hidden = 32, c.heads = 4, c.vocab = 61, c.context = 16;
  c.window = 4, c.global_layers = {0, 4}, c.unrotated_layers = {1, 4};
  complete(c);
  for (int64_t i = 0; i < c.layers; ++i) {
    EXPECT_EQ(c.is_local(i), i % 4 != 0) << i;
    EXPECT_EQ(c.is_rotated(i), i % 3 != 1) << i;
  }
  const auto refused = [&](auto change) {
    ModelConfig other = c;
    change(other);
    return message_of([&] { complete(other); });
  };
  EXPECT_NE(refused([](ModelConfig& m) { m.global_every = 2; }).find("global_layers"), std::string::npos);
  EXPECT_NE(refused([](ModelConfig& m) { m.unrotated_every = 2; }).find("unrotated_layers"), std::string::npos);
  EXPECT_NE(refused([](ModelConfig& m) { m.global_layers = {5}; }).find("from 0 to 4"), std::string::npos);
  EXPECT_NE(refused([](ModelConfig& m) { m.unrotated_layers = {2, 1}; }).find("ascending"), std::string::npos);
  c.window = 0;
  complete(c);
  EXPECT_TRUE(c.global_layers.empty());
}

TEST(LayersThatDifferTest, InputsCountForEveryLayer) {
  ModelConfig c = gemma4(), plain = gemma4();
  c.layer_inputs = 6;
  complete(c), complete(plain);
  EXPECT_EQ(c.num_params() - plain.num_params(), 9 * 6 * (61 + 32) + 6 + 9 * (2 * 6 * 32 + 32));
}

// Of three queries' latents, four heads of an index; rows of 16 tokens see 8 keys at most.
TEST(SparseAttentionTest, CountsWhatRowsSeeAndWhatSelectsIt) {
  ModelConfig c = family_defaults("deepseek_v32");
  c.layers = 1, c.hidden = 32, c.heads = 4, c.ffn = 48, c.vocab = 61, c.context = 64;
  c.head_dim = 12, c.rotary_dim = 4, c.value_dim = 10, c.kv_rank = 20, c.query_rank = 3;
  ModelConfig dense = c;
  complete(dense);
  c.index_heads = 4, c.index_head_dim = 6, c.index_topk = 8;
  complete(c);
  const int64_t index = 3 * 4 * 6 + 32 * (4 + 6);
  EXPECT_EQ(c.num_params() - dense.num_params(), index + 2 * 6);
  EXPECT_EQ(c.flops_per_token(8), dense.flops_per_token(8));
  const double unseen = 8.5 - (8 * 9 / 2 + 8 * 8) / 16.0, scores = 4 * (12 + 10),
               selecting = double(index) + 4 * 6 * 8.5;
  EXPECT_NEAR(dense.flops_per_token(16) - c.flops_per_token(16), 6 * scores * unseen - 2 * selecting, 1e-6);
  EXPECT_NEAR(dense.prompt_flops(16, 16) - c.prompt_flops(16, 16), 2 * 16 * (scores * unseen - selecting), 1e-6);
}

// Of four streams: eight weights for each of two parts of two layers, and four for the head.
TEST(StreamsTest, AreCounted) {
  ModelConfig c = family_defaults("llama");
  c.layers = 2, c.hidden = 32, c.heads = 4, c.ffn = 48, c.vocab = 61, c.context = 64;
  ModelConfig plain = c;
  c.residual_streams = 4;
  complete(c), complete(plain);
  const int64_t matrices = 2 * 2 * 8 * 4 * 32 + 4 * 4 * 32;
  EXPECT_EQ(c.num_params() - plain.num_params(), matrices + 2 * 2 * (8 + 2) + 4 + 1);
  EXPECT_EQ(c.flops_per_token(16) - plain.flops_per_token(16), 6.0 * double(matrices));
  EXPECT_EQ(c.residual_width(), 128);
  const int64_t unmixed = c.num_params();
  c.stream_mix_steps = 20;
  complete(c);
  EXPECT_EQ(c.num_params() - unmixed, 2 * 2 * (16 * 4 * 32 + 16 + 1));
}

TEST(SparseAttentionTest, PresetsAreThePublishedShapes) {
  for (const auto& [name, params] :
       {std::pair("deepseek-v3.2", 671'877'929'216), {"glm-5", 743'911'199'232}, {"hy4-preview", 58'278'193'133}}) {
    ModelConfig c = preset(name);
    complete(c);
    EXPECT_EQ(c.num_params(), params) << name;
  }
}

TEST(LearnedActivationTest, PresetsAreThePublishedShapes) {
  for (const auto& [name, params] : {std::pair("apertus-8b", 8'053'338'176), {"apertus-70b", 70'599'864'480}}) {
    ModelConfig c = preset(name);
    complete(c);
    EXPECT_EQ(c.num_params(), params) << name;
  }
}

struct Impossible {
  const char* name;
  void (*change)(ModelConfig&);
  const char* key;  // that the message names
};
class ImpossibleLayers : public testing::TestWithParam<Impossible> {};
INSTANTIATE_TEST_SUITE_P(
    Table, ImpossibleLayers,
    testing::Values(
        Impossible{"HeadsNotDivided", [](ModelConfig& c) { c.global_kv_heads = 3; }, "global_kv_heads = 3"},
        Impossible{"NegativeWidth", [](ModelConfig& c) { c.global_head_dim = -8; }, "global_head_dim = -8"},
        Impossible{"OddWidth", [](ModelConfig& c) { c.global_head_dim = 7; }, "rotary_dim"},
        Impossible{"NoNormOfValues", [](ModelConfig& c) { c.global_values_are_keys = true, c.value_norm = false; },
                   "global_values_are_keys"},
        Impossible{"PartThatPredicts", [](ModelConfig& c) { c.mtp_layers = 1; }, "global_head_dim"},
        Impossible{"TurnedBeyondAll", [](ModelConfig& c) { c.rope_scaling.turned_share = 1.5; }, "rope_turned_share"},
        Impossible{"AllLayersShare", [](ModelConfig& c) { c.shared_kv_layers = 9; }, "shared_kv_layers = 9"},
        Impossible{"NoGlobalLayerBefore", [](ModelConfig& c) { c.shared_kv_layers = 7; }, "layer 2"},
        Impossible{"NegativeInputs", [](ModelConfig& c) { c.layer_inputs = -1; }, "layer_inputs = -1"},
        Impossible{"InputsAndStates",
                   [](ModelConfig& c) {
                     c.global_head_dim = c.global_kv_heads = 0;
                     c.layer_inputs = 4, c.attention_every = 2;
                   },
                   "layer_inputs"},
        Impossible{"ExpertsWithoutNormsBehind",
                   [](ModelConfig& c) { c.experts = 4, c.experts_beside_dense = true, c.block = BlockKind::pre; },
                   "experts_beside_dense"},
        Impossible{"StreamsBetweenNorms", [](ModelConfig& c) { c.residual_streams = 2; }, "residual_streams = 2"},
        Impossible{"TooManyMixSteps",
                   [](ModelConfig& c) {
                     c.block = BlockKind::pre, c.layer_inputs = 0, c.layer_scale = false;
                     c.residual_streams = 2, c.stream_mix_steps = 33;
                   },
                   "stream_mix_steps = 33"},
        Impossible{"MixedByQuotientsOfZero",
                   [](ModelConfig& c) {
                     c.block = BlockKind::pre, c.layer_inputs = 0, c.layer_scale = false;
                     c.residual_streams = 2, c.stream_mix_steps = 3, c.stream_eps = 0;
                   },
                   "stream_eps = 0"},
        Impossible{"TooManyStreams", [](ModelConfig& c) { c.residual_streams = 9; }, "residual_streams = 9"},
        Impossible{"ClippedWithoutGates",
                   [](ModelConfig& c) { c.experts = 4, c.clips_experts = true, c.is_gated = false; },
                   "clips_experts"},
        Impossible{"LearnedActivationOfExperts", [](ModelConfig& c) { c.experts = 4, set_activation(c, "xielu"); },
                   "xielu"},
        Impossible{"TwoNormsBehindExperts",
                   [](ModelConfig& c) { c.experts = 4, c.experts_beside_dense = c.expert_post_norm = true; },
                   "expert_post_norm"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(ImpossibleLayers, AreNamed) {
  ModelConfig c = gemma4();
  GetParam().change(c);
  const std::string message = message_of<UsageError>([&] { complete(c); });
  EXPECT_NE(message.find(GetParam().key), std::string::npos) << message;
}

}  // namespace
}  // namespace weft
