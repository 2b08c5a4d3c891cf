// The law of the house: any mesh gives the loss, every gradient and the updated weights of one rank.
#include "train/training_setup.h"

namespace weft {
namespace {

struct Case {
  const char* family;
  Precision precision;
  int dp;
  int64_t accumulation;
  float dropout;
  int recompute_every;
};

class EqualToOneRankTest : public testing::TestWithParam<Case> {};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return fmt::format("{}_{}_dp{}_acc{}{}{}", c.family, c.precision == Precision::fp32 ? "fp32" : "bf16", c.dp,
                     c.accumulation, c.dropout > 0 ? "_dropout" : "", c.recompute_every > 0 ? "_recompute" : "");
}

constexpr Case kCases[] = {
    {"gpt2", Precision::fp32, 2, 1, 0, 0},    {"gpt2", Precision::fp32, 4, 1, 0, 0},
    {"llama", Precision::fp32, 2, 1, 0, 0},   {"llama", Precision::fp32, 4, 1, 0, 0},
    {"llama", Precision::fp32, 8, 1, 0, 0},   {"llama", Precision::fp32, 2, 2, 0, 0},
    {"gpt2", Precision::fp32, 1, 4, 0, 0},    {"gpt2", Precision::fp32, 2, 2, 0.2f, 0},
    {"gpt2", Precision::fp32, 4, 1, 0.2f, 1}, {"llama", Precision::fp32, 2, 1, 0, 1},
    {"gpt2", Precision::bf16, 2, 1, 0, 0},    {"llama", Precision::bf16, 4, 1, 0, 0},
};
INSTANTIATE_TEST_SUITE_P(Meshes, EqualToOneRankTest, testing::ValuesIn(kCases), case_name);

TEST_P(EqualToOneRankTest, AfterTenSteps) {
  const Case& c = GetParam();
  const auto recipe_of = [&](int dp, int64_t accumulation, int recompute_every) {
    Recipe r = small_recipe(c.family, c.precision, dp, accumulation);
    r.model.dropout = c.dropout;
    if (recompute_every > 0) r.train.recompute = {RecomputePolicy::What::block, recompute_every};
    return r;
  };
  const Trained want = train_threads(recipe_of(1, 1, 0), 10);
  const Trained got = train_threads(recipe_of(c.dp, c.accumulation, c.recompute_every), 10);
  const double tolerance = c.precision == Precision::fp32 ? 1e-5 : 2e-2;
  // Adam divides by the size of the gradient, so weights drift by what little the gradients differ, step by step.
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], tolerance * want.losses[i]) << "step " << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], 5 * tolerance * want.norms[i]) << "step " << i;
  }
  for (size_t p = 0; p < want.names.size(); ++p) {
    // A key bias adds the same to all scores of a row: its true gradient is zero, and Adam makes rounding errors of
    // it as large as any other step.
    if (want.names[p].ends_with("key.bias")) continue;
    EXPECT_LT(relative_difference(got.gradients[p], want.gradients[p]), 2 * tolerance) << want.names[p];
    EXPECT_LT(relative_difference(got.weights[p], want.weights[p]), tolerance) << want.names[p];
  }
}

TEST(TrainingTest, TwoRunsAreTheSameBits) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const Recipe recipe = small_recipe("llama", precision, 2);
    const Trained a = train_threads(recipe, 5, 2), b = train_threads(recipe, 5, 2);
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(a.weights, b.weights);
    EXPECT_EQ(a.gradients, b.gradients);
  }
}

TEST(TrainingTest, LossFallsOnRepeatedRows) {
  // One fixed batch is learnt by heart.
  class OneBatch final : public BatchSource {
   public:
    explicit OneBatch(SyntheticBatches batches) : batches_(std::move(batches)) {}
    void fill(int64_t, int32_t first, int32_t rows, Batch& batch) const override {
      batches_.fill(0, first, rows, batch);
    }
    int64_t num_targets(int64_t) const override { return batches_.num_targets(0); }

   private:
    SyntheticBatches batches_;
  };
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    Recipe recipe = small_recipe("llama", precision, 1);
    recipe.optimizer.schedule.lr = 1e-2;
    run_ranks(1, [&](Communicator& world) {
      TestRank rank(cpu_kernels());
      const OneBatch batches(batches_of(recipe));
      Trainer trainer(rank.context, world, recipe, batches);
      const double first = trainer.step().loss;
      double last = first;
      for (int i = 0; i < 79; ++i) last = trainer.step().loss;
      EXPECT_NEAR(first, std::log(61), 0.1);
      EXPECT_LT(last, 0.3 * first);
    });
  }
}

}  // namespace
}  // namespace weft
