// Every optimizer in training: the loss falls, meshes equal one rank, and a resumed run goes on bit by bit.
#include "base/temporary_folder.h"
#include "train/training_setup.h"
#include "weft/comm/single/single.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/train/saved_run.h"
#include "weft/train/verify.h"

namespace weft {
namespace {

using enum OptimizerKind;
constexpr OptimizerKind kKinds[] = {adamw, adamw8bit, adafactor, lion, sgd, muon};

std::string name_of(OptimizerKind kind) {
  constexpr const char* kNames[] = {"adamw", "adamw8bit", "adafactor", "lion", "sgd", "muon"};
  return kNames[size_t(kind)];
}

Recipe optimizer_recipe(OptimizerKind kind, const MeshShape& shape, Zero zero, int64_t accumulation = 1) {
  Recipe r = small_recipe("llama", Precision::fp32, shape.dp(), accumulation, 8);
  if (kind == adamw8bit) r.model.hidden = 64, r.model.ffn = 96;  // matrices large enough for 8 bits
  r.mesh.shape = shape, r.mesh.zero = zero;
  r.optimizer.kind = kind;
  r.optimizer.schedule = {.decay = Decay::constant, .lr = kind == sgd ? 0.5 : 2e-3, .steps = 100};
  make_continuous(r.optimizer, 1e-4);
  return r;
}

class OptimizerKindTest : public testing::TestWithParam<OptimizerKind> {};
INSTANTIATE_TEST_SUITE_P(All, OptimizerKindTest, testing::ValuesIn(kKinds),
                         [](const auto& test) { return name_of(test.param); });

// The same batch again and again: SyntheticBatches are noise, which only a memory can learn.
class SameBatch final : public BatchSource {
 public:
  explicit SameBatch(const Recipe& recipe) : all_(batches_of(recipe)) {}
  void fill(int64_t, int32_t first_row, int32_t rows, Batch& batch) const override {
    all_.fill(0, first_row, rows, batch);
  }
  int64_t num_targets(int64_t) const override { return all_.num_targets(0); }

 private:
  SyntheticBatches all_;
};

TEST_P(OptimizerKindTest, LossFalls) {
  Recipe recipe = optimizer_recipe(GetParam(), {}, Zero::none);
  OptimizerConfig& c = recipe.optimizer;
  const LrSchedule schedule = c.schedule;
  c = {.kind = GetParam(), .schedule = schedule};  // as a recipe has it, with sign and small epsilon
  const SameBatch batches(recipe);
  TestRank rank(cpu_kernels());
  const auto alone = make_single_communicator();
  Trainer trainer(rank.context, *alone, recipe, batches);
  const double first = trainer.step().loss;
  double last = first;
  for (int i = 0; i < 60; ++i) last = trainer.step().loss;
  EXPECT_LT(last, 0.75 * first) << first << " to " << last;
}

struct OptimizerMesh {
  OptimizerKind kind;
  MeshShape shape;
  Zero zero = Zero::none;
  int64_t accumulation = 1;
  bool has_experts = false;  // with biases, which are stacks of vectors
};
std::vector<OptimizerMesh> mesh_cases() {
  std::vector<OptimizerMesh> cases;
  for (const OptimizerKind kind : kKinds) {
    cases.push_back({kind, {.shard = 2}, Zero::none});
    cases.push_back({kind, {.shard = 2}, Zero::optimizer});
    cases.push_back({kind, {.shard = 2}, Zero::parameters});
    cases.push_back({kind, {.replicate = 2, .shard = 2}, Zero::gradients});
    cases.push_back({kind, {.tp = 2}});
    cases.push_back({kind, {.tp = 3}});
    cases.push_back({kind, {.pp = 2}, Zero::none, 2});
    cases.push_back({kind, {.shard = 2, .tp = 2}, Zero::parameters});
    cases.push_back({kind, {.tp = 2}, Zero::none, 1, true});
    cases.push_back({kind, {.shard = 2, .ep = 2}, Zero::optimizer, 1, true});
  }
  return cases;
}
class OptimizerMeshTest : public testing::TestWithParam<OptimizerMesh> {};
INSTANTIATE_TEST_SUITE_P(All, OptimizerMeshTest, testing::ValuesIn(mesh_cases()), [](const auto& test) {
  const MeshShape& s = test.param.shape;
  return fmt::format("{}_pp{}r{}s{}tp{}_zero{}{}", name_of(test.param.kind), s.pp, s.replicate, s.shard, s.tp,
                     int(test.param.zero), test.param.has_experts ? "_experts" : "");
});

TEST_P(OptimizerMeshTest, EqualsOneRank) {
  const OptimizerMesh& c = GetParam();
  Recipe alone = optimizer_recipe(c.kind, {}, Zero::none);
  Recipe together = optimizer_recipe(c.kind, c.shape, c.zero, c.accumulation);
  if (c.has_experts)
    for (ModelConfig* m : {&alone.model, &together.model}) {
      m->experts = 4, m->expert_ffn = 24, m->expert_bias = true;
      complete(*m);
    }
  const TrainedRun want = train_mesh(alone, 3), got = train_mesh(together, 3);
  const Difference d = difference(got, want);
  // A rounding error at the border of two codes of 8 bits becomes the distance between them, and tensor parallelism
  // cuts other blocks.
  const double tolerance = c.kind == adamw8bit ? 2e-3 : 1e-5;
  EXPECT_LE(d.loss, tolerance);
  EXPECT_LE(d.gradient, c.kind == adamw8bit ? 1e-2 : tolerance) << d.gradient_name;
  EXPECT_LE(d.weight, c.kind == adamw8bit ? 1e-2 : tolerance) << d.weight_name;
}

// Lion's sign turns over where rounding does; elsewhere weights are the same.
TEST(LionTest, SignsEqualOneRankBesideFew) {
  Recipe one = optimizer_recipe(lion, {}, Zero::none),
         mesh = optimizer_recipe(lion, {.shard = 2, .tp = 2}, Zero::parameters);
  one.optimizer.lion.softness = mesh.optimizer.lion.softness = 0;
  const TrainedRun want = train_mesh(one, 3), got = train_mesh(mesh, 3);
  size_t differ = 0, all = 0;
  for (size_t p = 0; p < want.weights.size(); ++p)
    for (size_t i = 0; i < want.weights[p].size(); ++i, ++all) {
      const double d = std::abs(double(got.weights[p][i]) - double(want.weights[p][i]));
      differ += d > 1e-6;
      ASSERT_LE(d, 3 * 2 * one.optimizer.schedule.lr * 1.01) << want.names[p];
    }
  EXPECT_LE(double(differ), 1e-3 * double(all));
}

// Saves after 3 steps on the first mesh, goes on for 3 more on both; the losses and weights of both.
struct Resumed {
  TrainedRun whole, resumed;
};
Resumed resume(const Recipe& recipe, const Recipe& other) {
  const TemporaryFolder folder;
  const ByteTokenizer tokenizer;
  Resumed r;
  const auto go_on = [&](const Recipe& mine, Trainer& trainer, Communicator& world, TrainedRun& out) {
    TrainedRun run;
    for (int i = 0; i < 3; ++i) run.losses.push_back(trainer.step().loss);
    add_tensors(mine, trainer, run);
    if (world.rank() == 0) out = std::move(run);
  };
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const SyntheticBatches batches = batches_of(recipe);
    Trainer trainer(rank.context, world, recipe, batches);
    for (int i = 0; i < 3; ++i) trainer.step();
    CheckpointStore store(folder.path());
    SavedRun saved(trainer, recipe, tokenizer);
    save_now(saved, trainer, store);
    go_on(recipe, trainer, world, r.whole);
  });
  run_ranks(other.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const SyntheticBatches batches = batches_of(other);
    Trainer trainer(rank.context, world, other, batches);
    CheckpointStore store(folder.path());
    SavedRun(trainer, other, tokenizer).load(*store.newest_valid().checkpoint);
    go_on(other, trainer, world, r.resumed);
  });
  return r;
}

TEST_P(OptimizerKindTest, GoesOnBitwise) {
  for (const MeshShape& shape : {MeshShape{}, MeshShape{.shard = 2, .tp = 2}}) {
    const Recipe recipe = optimizer_recipe(GetParam(), shape, shape.shard > 1 ? Zero::parameters : Zero::none);
    const auto [whole, resumed] = resume(recipe, recipe);
    EXPECT_EQ(resumed.losses, whole.losses);
    EXPECT_EQ(resumed.weights, whole.weights);
  }
}

TEST_P(OptimizerKindTest, GoesOnOnAnotherMesh) {
  const auto [whole, resumed] = resume(optimizer_recipe(GetParam(), {.shard = 2, .tp = 2}, Zero::parameters),
                                       optimizer_recipe(GetParam(), {.pp = 2}, Zero::none, 2));
  for (size_t i = 0; i < whole.losses.size(); ++i)
    EXPECT_NEAR(resumed.losses[i], whole.losses[i], (GetParam() == adamw8bit ? 1e-3 : 1e-5) * whole.losses[i]);
}

}  // namespace
}  // namespace weft
