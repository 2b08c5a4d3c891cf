// A model that only runs forward gives one rank's logits and tokens on every mesh, whatever its family.
#include "pretrained/model_on_ranks.h"
#include "pretrained/sample_configs.h"
#include "weft/pretrained/hf_family.h"

namespace weft {
namespace {

struct MeshedSample {
  SampleConfig sample;
  MeshShape mesh;
};

class ForwardModelTest : public testing::TestWithParam<MeshedSample> {};

// Large initial values, so that every part of the model shows in the logits.
ModelConfig sample_config(const SampleConfig& sample) {
  ModelConfig c = parse_hf_config(sample.json, "config.json").model;
  c.init_std = 0.3f;
  return c;
}

TEST_P(ForwardModelTest, IsOneRanks) {
  const ModelConfig config = sample_config(GetParam().sample);
  const std::vector<int32_t> ids{3, 1, 4, 1, 5, 9, 2, 6, 5};
  const Logits one = logits_on(config, {}, initial_values(5), ids);
  const Logits many = logits_on(config, GetParam().mesh, initial_values(5), ids);
  EXPECT_LT(worst_difference(one, many), 1e-5);
  const std::vector<int32_t> prompt{3, 1, 4};
  EXPECT_EQ(greedy_on(config, GetParam().mesh, initial_values(5), prompt, 30),
            greedy_on(config, {}, initial_values(5), prompt, 30));
}

std::vector<MeshedSample> meshed_samples() {
  std::vector<MeshedSample> all;
  for (const SampleConfig& sample : sample_configs()) {
    const ModelConfig config = sample_config(sample);
    for (const MeshShape& mesh :
         {MeshShape{.tp = 2}, MeshShape{.pp = 2}, MeshShape{.shard = 2}, MeshShape{.pp = 2, .tp = 2}})
      all.push_back({sample, mesh});
    if (config.experts == 0) continue;
    all.push_back({sample, {.shard = 2, .ep = 2}});
    all.push_back({sample, {.pp = 2, .shard = 2, .tp = 2, .ep = 2}});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, ForwardModelTest, testing::ValuesIn(meshed_samples()), [](const auto& test) {
  return fmt::format("{}_{}", test.param.sample.name, name_of_mesh(test.param.mesh));
});

TEST(ForwardModelMeshTest, RefusesWhatTheModelCannotFill) {
  const ModelConfig config = sample_config(sample_configs()[0]);
  const std::vector<int32_t> ids{1};
  EXPECT_THROW(logits_on(config, {.pp = 3}, initial_values(5), ids), UsageError);
  EXPECT_THROW(logits_on(config, {.tp = 5}, initial_values(5), ids), UsageError);
  EXPECT_THROW(logits_on(config, {.shard = 2, .ep = 2}, initial_values(5), ids), UsageError);
}

}  // namespace
}  // namespace weft
