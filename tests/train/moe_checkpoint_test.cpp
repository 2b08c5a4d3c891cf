// Checkpoints of models with experts: saved on one mesh, they go on alike on any other, biases of routers included.
#include "base/temporary_folder.h"
#include "train/training_setup.h"
#include "weft/pretrained/model_source.h"

namespace weft {
namespace {

Recipe moe_recipe_on(const MeshShape& mesh, int64_t accumulation, Zero zero) {
  Recipe r = small_recipe("llama", Precision::fp32, mesh.dp(), accumulation);
  r.model.experts = 5, r.model.expert_ffn = 8, r.model.router_bias_rate = 0.01f;
  complete(r.model);
  r.optimizer.adamw.eps = 1e-4;
  r.mesh.shape = mesh, r.mesh.zero = zero;
  return r;
}

using Biases = std::vector<std::vector<float>>;
Biases biases_of(const std::vector<RouterBias*>& biases) {
  Biases all;
  for (RouterBias* b : biases) {
    const float* const values = b->bias.value.data<float>();
    all.emplace_back(values, values + b->bias.shape.numel());
  }
  return all;
}

struct Went {
  std::vector<double> losses;
  Biases biases;  // of all layers; where layers are on several ranks, of the first
};

// Loads what is there, takes some steps and saves.
Went go_on(const Recipe& recipe, const std::string& folder, int steps) {
  Went went;
  const auto keep_biases = [&](Trainer& trainer) {
    went.biases = biases_of(trainer.model().parts()[0]->router_biases());
  };
  went.losses = losses_of(go_on_in(folder, recipe, steps, keep_biases));
  return went;
}

TEST(MoeCheckpointTest, GoesOnOnAnotherMesh) {
  const TemporaryFolder one, many;
  const Recipe alone = moe_recipe_on({}, 1, Zero::none);
  const Went begun = go_on(alone, one.path(), 4), done = go_on(alone, one.path(), 3);
  EXPECT_NE(begun.biases, done.biases);
  EXPECT_EQ(done.biases.size(), 2u);
  const Went first = go_on(moe_recipe_on({.pp = 2, .shard = 2, .ep = 2}, 2, Zero::none), many.path(), 4);
  const Went second = go_on(moe_recipe_on({.shard = 4, .tp = 2, .ep = 2}, 1, Zero::parameters), many.path(), 3);
  for (size_t i = 0; i < begun.losses.size(); ++i) EXPECT_NEAR(first.losses[i], begun.losses[i], 1e-4);
  for (size_t i = 0; i < done.losses.size(); ++i) EXPECT_NEAR(second.losses[i], done.losses[i], 1e-4);
  EXPECT_EQ(first.biases[0], begun.biases[0]);
  EXPECT_EQ(second.biases, done.biases);

  TestRank rank(cpu_kernels());
  const auto source = open_model(many.path());
  Decoder loaded(source->config());
  loaded.allocate(rank.context, DType::bf16);
  load_values(rank.context, *source, loaded);
  EXPECT_EQ(biases_of(loaded.router_biases()), done.biases);
}

// Codes come from what is saved beside their scales, whatever part of the experts a rank had and has.
TEST(MoeCheckpointTest, ExpertsOfFourBitsKeepTheirCodes) {
  const auto recipe_on = [](const MeshShape& mesh, int64_t accumulation, Zero zero) {
    Recipe r = moe_recipe_on(mesh, accumulation, zero);
    r.model.lora = {.rank = 4, .alpha = 32, .targets = kAllTargets, .base = BaseFormat::nf4};
    return r;
  };
  const TemporaryFolder one, many;
  const Recipe alone = recipe_on({}, 1, Zero::none);
  const Went begun = go_on(alone, one.path(), 4), done = go_on(alone, one.path(), 3);
  const Went first = go_on(recipe_on({.pp = 2, .shard = 2, .tp = 3, .ep = 2}, 2, Zero::none), many.path(), 4);
  const Went second = go_on(recipe_on({.shard = 4, .tp = 2, .ep = 2}, 1, Zero::parameters), many.path(), 3);
  for (size_t i = 0; i < begun.losses.size(); ++i) EXPECT_NEAR(first.losses[i], begun.losses[i], 1e-5);
  for (size_t i = 0; i < done.losses.size(); ++i) EXPECT_NEAR(second.losses[i], done.losses[i], 1e-5);
}

}  // namespace
}  // namespace weft
