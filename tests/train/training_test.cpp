// Training runs as such: the same bits twice, and a loss that falls.
#include "train/mesh_cases.h"

namespace weft {
namespace {

TEST(TrainingTest, TwoRunsAreTheSameBits) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const Recipe recipe = small_recipe("llama", precision, 2);
    const TrainedRun a = train_mesh(recipe, 5, 2), b = train_mesh(recipe, 5, 2);
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
