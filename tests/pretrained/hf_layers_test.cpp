// Which layers a config.json says are local, turn, hand on a state or have an index.
#include <gtest/gtest.h>

#include "pretrained/sample_configs.h"
#include "weft/pretrained/hf_family.h"

namespace weft {
namespace {

TEST(HfLayersTest, LayersWithoutPositionsAreGlobalOnesWhereThereIsAWindow) {
  nlohmann::json json = sample("exaone4");
  json["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  json["sliding_window"] = 4;
  const ModelConfig local = parse_hf_config(json.dump(), "x").model;
  EXPECT_TRUE(local.is_rotated(0) && !local.is_rotated(1) && local.is_rotated(2) && !local.is_rotated(3));
  json["sliding_window"] = nullptr, json["layer_types"] = std::vector<std::string>(4, "full_attention");
  const ModelConfig global = parse_hf_config(json.dump(), "x").model;
  for (int64_t i = 0; i < 4; ++i) EXPECT_TRUE(global.is_rotated(i) && !global.is_local(i)) << i;
}

TEST(HfLayersTest, SomeLayersHaveAnIndex) {
  nlohmann::json json = sample("glm_moe_dsa");
  json["num_hidden_layers"] = 8;
  EXPECT_TRUE(parse_hf_config(json.dump(), "x").model.index_layers.empty());
  json["index_topk_freq"] = 3;
  EXPECT_EQ(parse_hf_config(json.dump(), "x").model.index_layers, (std::vector<int64_t>{0, 1, 4, 7}));
  json["index_skip_topk_offset"] = 4;
  EXPECT_EQ(parse_hf_config(json.dump(), "x").model.index_layers, (std::vector<int64_t>{0, 1, 2, 3, 6}));
  json["indexer_types"] = {"full", "shared", "shared", "full", "shared", "full", "full", "shared"};
  EXPECT_EQ(parse_hf_config(json.dump(), "x").model.index_layers, (std::vector<int64_t>{0, 3, 5, 6}));
  json = sample("hy_v4");
  json["num_hidden_layers"] = 10, json.erase("indexer_types"), json.erase("mlp_layer_types");
  EXPECT_EQ(parse_hf_config(json.dump(), "x").model.index_layers, (std::vector<int64_t>{0, 1, 5, 9}));
}

// Where a file names no layers; and any pattern, where it does.
TEST(HfLayersTest, LayersAreGlobalByAnyPattern) {
  const auto layers_of = [](const nlohmann::json& json) {
    const ModelConfig c = parse_hf_config(json.dump(), "x").model;
    std::string text;
    for (int64_t i = 0; i < c.layers; ++i)
      text += c.is_local(i) ? (c.is_rotated(i) ? 'l' : '?') : c.is_rotated(i) ? 'g' : 'n';
    return text;
  };
  for (const char* name : {"cwm", "granite_swa"}) {
    nlohmann::json json = sample(name);
    json["num_hidden_layers"] = 9, json.erase("layer_types"), json.erase("layer_rope_theta");
    EXPECT_EQ(layers_of(json), "glllglllg") << name;
  }
  EXPECT_EQ(layers_of(sample("granite_swa")), "nlnln");
  EXPECT_EQ(layers_of(sample("granitemoe_swa")), "glllg");
  nlohmann::json cohere = sample("cohere2_moe");
  EXPECT_EQ(layers_of(cohere), "glnln");
  cohere.update({{"first_k_dense_replace", 4}, {"num_hidden_layers", 6}, {"prefix_dense_sliding_window_pattern", 3}});
  EXPECT_EQ(layers_of(cohere), "llnlln");
  nlohmann::json olmo = sample("olmo3");
  olmo["layer_types"] = {"full_attention", "full_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(layers_of(olmo), "gglg");
  olmo["layer_types"] = {"sliding_attention", "full_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(layers_of(olmo), "lggl");
  nlohmann::json smollm = sample("smollm3");
  smollm["no_rope_layers"] = {0, 1, 1, 0};
  EXPECT_EQ(layers_of(smollm), "nggn");
}

// Named, or as files mean that do not name them.
TEST(HfLayersTest, LayersOfLfm3AreOfThreeKinds) {
  const auto layers_of = [](const nlohmann::json& json) {
    const ModelConfig c = parse_hf_config(json.dump(), "x").model;
    std::string text;
    for (int64_t i = 0; i < c.layers; ++i) text += c.is_recurrent(i) ? 'c' : c.is_local(i) ? 'l' : 'g';
    return text;
  };
  nlohmann::json json = sample("lfm3");
  json["num_hidden_layers"] = 9;
  EXPECT_EQ(layers_of(json), "ccgclcgcl");
  json["layer_types"] = std::vector<std::string>(9, "conv");
  json["layer_types"][0] = json["layer_types"][5] = "full_attention";
  EXPECT_EQ(layers_of(json), "gccccgccc");
  json["layer_types"][8] = "sliding_attention";
  EXPECT_EQ(layers_of(json), "gccccgccl");
  json["sliding_window"] = nullptr, json["layer_types"][8] = "conv";
  EXPECT_EQ(layers_of(json), "gccccgccc");
}

}  // namespace
}  // namespace weft
