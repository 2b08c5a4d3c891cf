// Distillation: the loss against plain loops in float64, and every mesh as one rank.
#include "base/temporary_folder.h"
#include "support/message_of.h"
#include "train/mesh_cases.h"
#include "weft/base/toml.h"
#include "weft/comm/single/single.h"
#include "weft/parallel/distill_loss.h"
#include "weft/train/distill_objective.h"
#include "weft/train/memory_estimate.h"

namespace weft {
namespace {

constexpr int64_t kTokens = 6, kVocab = 11, kHidden = 5, kTeacherHidden = 7;
const std::vector<int32_t> kTargets{3, -1, 10, 0, 5, 3};

// log softmax((x wᵀ + b) / t) of a row.
std::vector<double> log_probabilities(const double* x, const Tensor& w, const Tensor& b, double t) {
  std::vector<double> logits;
  double sum = 0;
  for (int64_t v = 0; v < w.dim(0); ++v) {
    double dot = b.data<double>()[v];
    for (int64_t i = 0; i < w.dim(1); ++i) dot += x[i] * w.data<double>()[v * w.dim(1) + i];
    logits.push_back(dot / t), sum += std::exp(dot / t);
  }
  for (double& l : logits) l -= std::log(sum);
  return logits;
}

TEST(DistillLossTest, EqualsPlainLoopsAndCentralDifferences) {
  TestRank rank(reference_kernels());
  Param student("head.weight", Shape{kVocab, kHidden}, Init::zeros());
  Param teacher("teacher", Shape{kVocab, kTeacherHidden}, Init::zeros());
  student.value = rank.normal(DType::f64, student.shape, "student");
  student.grad = rank.context.empty(DType::f64, student.shape);
  Param bias("head.bias", Shape{kVocab}, Init::zeros()), teacher_bias("teacher.bias", Shape{kVocab}, Init::zeros());
  bias.value = rank.normal(DType::f64, bias.shape, "bias");
  bias.grad = rank.context.empty(DType::f64, bias.shape);
  teacher_bias.value = rank.normal(DType::f64, bias.shape, "teacher's bias");
  teacher.value = rank.normal(DType::f64, teacher.shape, "teacher");
  const Tensor x = rank.normal(DType::f64, {kTokens, kHidden}, "x");
  const Tensor h = rank.normal(DType::f64, {kTokens, kTeacherHidden}, "h");
  const DistillMix mix{.alpha = 0.75f, .temperature = 2};
  const auto want = [&] {
    double sum = 0;
    for (int64_t t = 0; t < kTokens; ++t) {
      if (kTargets[size_t(t)] < 0) continue;
      const double* const row = x.data<double>() + t * kHidden;
      const auto p = log_probabilities(h.data<double>() + t * kTeacherHidden, teacher.value, teacher_bias.value, 2);
      const auto q = log_probabilities(row, student.value, bias.value, 2);
      double kl = 0;
      for (size_t v = 0; v < p.size(); ++v) kl += std::exp(p[v]) * (p[v] - q[v]);
      sum +=
          0.25 * -log_probabilities(row, student.value, bias.value, 1)[size_t(kTargets[size_t(t)])] + 0.75 * 4 * kl;
    }
    return sum;
  };
  Tape tape;
  rank.context.tape = &tape;
  const Var in = tape.leaf(rank.context, x);
  constexpr float kGradScale = 0.5f;
  const Var loss = distill_loss(TensorParallel(), {&student, &bias}, kTargets.data(), {{&teacher, &teacher_bias}, h},
                                mix, kGradScale, in);
  EXPECT_NEAR(*loss.value.data<double>(), want(), 1e-10);
  const Tensor dy = rank.context.empty_like(loss.value);
  rank.context.kernels.fill(rank.stream, dy, 1);
  tape.backward(loss, dy);
  rank.context.tape = nullptr;
  const auto expect_slopes = [&](const Tensor& value, const Tensor& grad, const char* name) {
    constexpr double kStep = 1e-6;
    for (int64_t i = 0; i < value.numel(); ++i) {
      double& v = value.data<double>()[i];
      const double before = v;
      v = before + kStep;
      const double above = want();
      v = before - kStep;
      const double below = want();
      v = before;
      EXPECT_NEAR(grad.data<double>()[i], double(kGradScale) * (above - below) / (2 * kStep), 1e-7) << name << i;
    }
  };
  expect_slopes(x, tape.grad(in), "x");
  expect_slopes(student.value, student.grad, "weight");
  expect_slopes(bias.value, bias.grad, "bias");
}

// Saves a model that has other widths than the student.
std::string saved_teacher(const std::string& folder) {
  Recipe recipe = small_recipe("llama", Precision::fp32, 1);
  recipe.model.hidden = 48, recipe.model.heads = 6, recipe.model.kv_heads = 3, recipe.model.head_dim = 8;
  recipe.train.seed = 5;
  return saved_model(recipe, folder);
}

TrainedRun distill(Recipe recipe, const ModelSource& teacher, int steps) {
  recipe.distill = {.teacher = teacher.path(), .alpha = 0.6, .temperature = 1.5};
  make_smooth(recipe);
  TrainedRun run;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const SyntheticBatches batches = batches_of(recipe);
    Trainer trainer(rank.context, world, recipe, batches);
    DistillObjective objective(recipe, batches, teacher, trainer);
    trainer.set_objective(&objective);
    TrainedRun mine = take_steps(recipe, trainer, steps);
    if (world.rank() == 0) run = std::move(mine);
  });
  return run;
}

struct DistillCase {
  const char* name;
  MeshCase mesh;
};
class DistillMeshTest : public testing::TestWithParam<DistillCase> {};
INSTANTIATE_TEST_SUITE_P(
    Meshes, DistillMeshTest,
    testing::Values(
        DistillCase{"dp2", {.shape = {.shard = 2}, .accumulation = 2}}, DistillCase{"tp3", {.shape = {.tp = 3}}},
        DistillCase{"tp2_sp", {.shape = {.tp = 2}, .sequence_parallel = true}},
        DistillCase{"pp2", {.shape = {.pp = 2}, .accumulation = 4}}, DistillCase{"cp2", {.shape = {.cp = 2}}},
        DistillCase{"pp2_cp2_tp2", {.shape = {.pp = 2, .cp = 2, .tp = 2}, .accumulation = 2}},
        DistillCase{"zero3_lora",
                    {.shape = {.shard = 2},
                     .zero = Zero::parameters,
                     .accumulation = 2,
                     .lora = {.rank = 4, .alpha = 32, .dropout = 0, .targets = kAllTargets}}},
        DistillCase{"pp2_dp2_tp2",
                    {.shape = {.pp = 2, .shard = 2, .tp = 2}, .zero = Zero::gradients, .accumulation = 2}}),
    [](const auto& test) { return test.param.name; });

TEST_P(DistillMeshTest, EqualsOneRank) {
  const TemporaryFolder folder;
  const std::unique_ptr<ModelSource> teacher = open_model(saved_teacher(folder.path()));
  const MeshCase& c = GetParam().mesh;
  const TrainedRun one = distill(recipe_of(on_one_rank(c)), *teacher, 3);
  const Difference d = difference(distill(recipe_of(c), *teacher, 3), one);
  EXPECT_LE(d.loss, 1e-5);
  EXPECT_LE(d.gradient, 1e-5) << d.gradient_name;
  EXPECT_LE(d.weight, 1e-5) << d.weight_name;
}

// The teacher's weights and what it leaves for the loss are counted, on every rank.
TEST_P(DistillMeshTest, TakesWhatTheEstimateSays) {
  const TemporaryFolder folder;
  const std::unique_ptr<ModelSource> teacher = open_model(saved_teacher(folder.path()));
  Recipe recipe = recipe_of(GetParam().mesh);
  const std::vector<MemoryEstimate> alone = estimate_memory(recipe);
  recipe.distill.teacher = teacher->path();
  const std::vector<MemoryEstimate> estimates = estimate_memory(recipe);
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const SyntheticBatches batches = batches_of(recipe);
    Trainer trainer(rank.context, world, recipe, batches);
    DistillObjective objective(recipe, batches, *teacher, trainer);
    trainer.set_objective(&objective);
    for (int i = 0; i < 3; ++i) trainer.step();
    const MemoryEstimate& estimate = estimates[size_t(world.rank())];
    EXPECT_EQ(rank.allocator.stats().live_bytes, estimate.state_bytes);
    EXPECT_EQ(rank.allocator.stats().peak_bytes, estimate.peak_bytes);
    EXPECT_GT(estimate.state_bytes, alone[size_t(world.rank())].state_bytes);
  });
}

TEST(DistillTest, TheTeacherMustSpeakTheSameTokens) {
  const TemporaryFolder folder;
  const std::unique_ptr<ModelSource> teacher = open_model(saved_teacher(folder.path()));
  Recipe recipe = small_recipe("llama", Precision::fp32, 1);
  recipe.model.vocab = 62;
  EXPECT_THROW(distill(recipe, *teacher, 1), UsageError);
}

// Its head has no logits of tokens.
TEST(DistillTest, ATeacherWritesTexts) {
  const TemporaryFolder folder;
  const Recipe recipe = recipe_of({});
  Recipe scores = recipe;
  scores.model.labels = 2;
  complete(scores.model);
  const auto teacher = open_model(saved_model(scores, folder.path(), 0));
  const std::string message = message_of([&] { distill(recipe, *teacher, 1); });
  EXPECT_NE(message.find("scores texts and writes none"), std::string::npos) << message;
}

}  // namespace
}  // namespace weft
