// Training in fp16: the loss scale keeps small gradients, steps that overflow are skipped, and a resumed run goes on.
#include "base/temporary_folder.h"
#include "train/training_setup.h"
#include "weft/comm/single/single.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/train/saved_run.h"

namespace weft {
namespace {

// One rank that trains on a fixed batch.
struct OneRank {
  OneRank(const std::string& family, Precision precision, OnNotFinite on_not_finite = OnNotFinite::stop)
      : recipe(small_recipe(family, precision, 1)) {
    recipe.train.on_not_finite = on_not_finite;
    world = make_single_communicator();
    trainer.emplace(rank.context, *world, recipe, batches);
  }
  LossScaler& scaler() { return trainer->loss_scaler(); }
  void save(CheckpointStore& store, const Tokenizer& tokenizer) {
    SavedRun saved(*trainer, recipe, tokenizer);
    save_now(saved, *trainer, store);
  }
  std::vector<std::vector<float>> weights() {
    TrainedRun now;
    add_tensors(recipe, *trainer, now);
    return now.weights;
  }

  Recipe recipe;
  FixedBatches batches{recipe};
  TestRank rank{cpu_kernels()};
  std::unique_ptr<Communicator> world;
  std::optional<Trainer> trainer;
};

class Fp16Test : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, Fp16Test, testing::Values("gpt2", "llama"));

TEST_P(Fp16Test, LowersTheLossOnAFixedBatchAsOtherPrecisionsDo) {
  OneRank fp32(GetParam(), Precision::fp32), bf16(GetParam(), Precision::bf16), fp16(GetParam(), Precision::fp16);
  StepResult last;
  double first = 0;
  for (int i = 0; i < 40; ++i) {
    const StepResult exact = fp32.trainer->step(), rough = bf16.trainer->step();
    last = fp16.trainer->step();
    if (i == 0) first = last.loss;
    ASSERT_FALSE(last.was_skipped) << "step " << i;
    ASSERT_NEAR(last.loss, exact.loss, 1e-3 * exact.loss) << "step " << i;
    ASSERT_NEAR(last.loss, rough.loss, 1e-2 * rough.loss) << "step " << i;
    ASSERT_NEAR(last.grad_norm, exact.grad_norm, 1e-2 * exact.grad_norm) << "step " << i;
  }
  EXPECT_LT(last.loss, 0.95 * first);
  EXPECT_EQ(fp16.scaler().scale(), 65536);
  EXPECT_EQ(fp16.scaler().good_steps(), 40);
}

// A step that is left out is no proof of anything.
TEST_P(Fp16Test, NoStepOfAComparedRunIsLeftOut) {
  Recipe recipe = small_recipe(GetParam(), Precision::fp16, 1);
  recipe.model.logit_scale = 256;  // which gradients grow by
  FixedBatches batches{recipe};
  const auto alone = make_single_communicator();
  EXPECT_FALSE(std::isfinite(train_some(recipe, batches, *alone, 1, 1).grad_norms[0]));
  make_comparable(recipe, batches);
  EXPECT_LT(recipe.train.first_loss_scale, 65536);
  for (const double norm : train_some(recipe, batches, *alone, 3, 1).grad_norms) EXPECT_TRUE(std::isfinite(norm));
}

TEST_P(Fp16Test, SkipsStepsThatOverflowUntilTheScaleFits) {
  OneRank run(GetParam(), Precision::fp16);
  run.scaler().restore(0x1p32, 5);
  const auto untouched = run.weights();
  int skipped = 0;
  double scale = 0x1p32;
  StepResult result = run.trainer->step();
  for (; result.was_skipped; result = run.trainer->step()) {
    ++skipped;
    EXPECT_EQ(run.scaler().scale(), scale /= 2);
    EXPECT_EQ(run.scaler().good_steps(), 0);
    EXPECT_EQ(run.weights(), untouched);
    EXPECT_TRUE(std::isfinite(result.loss));
    ASSERT_LT(skipped, 30);
  }
  EXPECT_GT(skipped, 3);
  EXPECT_EQ(run.scaler().scale(), scale);
  EXPECT_NE(run.weights(), untouched);
  EXPECT_EQ(run.trainer->optimizer().num_updates(), 1);
  const double first = result.loss;
  for (int i = 0; i < 40; ++i) result = run.trainer->step();
  EXPECT_LT(result.loss, 0.95 * first);
}

// A scale of 1 cannot be halved: what is not finite then is the model's own.
TEST_P(Fp16Test, StopsWhenNoScaleHelps) {
  OneRank run(GetParam(), Precision::fp16), patient(GetParam(), Precision::fp16, OnNotFinite::skip);
  for (OneRank* each : {&run, &patient}) {
    each->scaler().restore(2, 0);
    overwrite(*each->trainer, "layers.1.mlp.down.weight", NAN);
    EXPECT_TRUE(each->trainer->step().was_skipped);
    EXPECT_EQ(each->scaler().scale(), 1);
  }
  EXPECT_THROW(run.trainer->step(), Error);
  EXPECT_TRUE(patient.trainer->step().was_skipped);
}

TEST_P(Fp16Test, ManyRanksSkipTheStepsOfOne) {
  const auto scales_of = [&](int dp) {
    const Recipe recipe = small_recipe(GetParam(), Precision::fp16, dp);
    const FixedBatches batches(recipe);
    std::vector<std::vector<double>> scales;
    scales.resize(size_t(dp));
    run_ranks(dp, [&](Communicator& world) {
      TestRank rank(cpu_kernels());
      Trainer trainer(rank.context, world, recipe, batches);
      trainer.loss_scaler().restore(0x1p32, 0);
      for (int i = 0; i < 20; ++i) {
        trainer.step();
        scales[size_t(world.rank())].push_back(trainer.loss_scaler().scale());
      }
    });
    return scales;
  };
  const std::vector<double> alone = scales_of(1)[0];
  EXPECT_EQ(alone.front(), 0x1p31);
  EXPECT_EQ(alone.back(), alone[18]);
  for (const std::vector<double>& scales : scales_of(2)) EXPECT_EQ(scales, alone);
}

TEST_P(Fp16Test, GoesOnFromACheckpointBitwise) {
  const TemporaryFolder folder;
  const ByteTokenizer tokenizer;
  OneRank whole(GetParam(), Precision::fp16), resumed(GetParam(), Precision::fp16);
  whole.scaler().restore(0x1p24, 0);
  for (int i = 0; i < 6; ++i) whole.trainer->step();
  CheckpointStore store(folder.path());
  whole.save(store, tokenizer);
  SavedRun(*resumed.trainer, resumed.recipe, tokenizer).load(*store.newest_valid().checkpoint);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(whole.trainer->step().loss, resumed.trainer->step().loss);
  EXPECT_EQ(resumed.scaler().scale(), whole.scaler().scale());
  EXPECT_EQ(resumed.scaler().good_steps(), whole.scaler().good_steps());
  EXPECT_EQ(resumed.weights(), whole.weights());
}

// Needs no step, so no kernel of fp16.
TEST(Fp16CheckpointTest, KeepsTheScale) {
  const TemporaryFolder folder;
  const ByteTokenizer tokenizer;
  CheckpointStore store(folder.path());
  OneRank fp16("llama", Precision::fp16), bf16("llama", Precision::bf16);
  fp16.scaler().restore(0x1p12, 17);
  fp16.save(store, tokenizer);
  OneRank resumed("llama", Precision::fp16);
  SavedRun(*resumed.trainer, resumed.recipe, tokenizer).load(*store.newest_valid().checkpoint);
  EXPECT_EQ(resumed.scaler().scale(), 0x1p12);
  EXPECT_EQ(resumed.scaler().good_steps(), 17);
  SavedRun(*bf16.trainer, bf16.recipe, tokenizer).load(*store.newest_valid().checkpoint);
  EXPECT_EQ(bf16.scaler().scale(), 1) << "bf16 needs no scale";
  bf16.trainer->set_next_step(1);
  bf16.save(store, tokenizer);
  OneRank begun("llama", Precision::fp16);
  SavedRun(*begun.trainer, begun.recipe, tokenizer).load(*store.newest_valid().checkpoint);
  EXPECT_EQ(begun.scaler().scale(), 65536) << "the run before it had none";
}

}  // namespace
}  // namespace weft
