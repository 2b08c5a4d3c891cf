// Training with states, parameters and activations elsewhere: the same bits from less memory.
#include "train/mesh_cases.h"
#include "weft/checkpoint/checkpoint_store.h"
#include "weft/comm/single/single.h"
#include "weft/text/byte_tokenizer.h"
#include "weft/train/memory_estimate.h"
#include "weft/train/saved_run.h"

namespace weft {
namespace {

enum class What { optimizer, parameters, activations, all };

struct OffloadCase {
  const char* name;
  MeshCase mesh;
};
const OffloadCase kOffloadCases[] = {
    {"one_rank", {.accumulation = 2, .recompute = {RecomputePolicy::What::block}}},
    {"dp2_zero1", {.shape = {.shard = 2}, .zero = Zero::optimizer, .recompute = {RecomputePolicy::What::block, 2}}},
    {"dp2_zero3",
     {.family = "gpt2",
      .shape = {.shard = 2},
      .zero = Zero::parameters,
      .accumulation = 2,
      .recompute = {RecomputePolicy::What::block},
      .dropout = 0.2f,
      .tie = true}},
    {"pp2_zb_h1",
     {.shape = {.pp = 2},
      .schedule = ScheduleKind::zb_h1,
      .accumulation = 4,
      .recompute = {RecomputePolicy::What::block}}},
    {"pp2_dp2_zero3",
     {.shape = {.pp = 2, .shard = 2},
      .zero = Zero::parameters,
      .accumulation = 2,
      .recompute = {RecomputePolicy::What::block}}},
};
using Setup = std::tuple<OffloadCase, What, OffloadTo, Precision>;

MeshCase offloaded(MeshCase c, What what, OffloadTo to) {
  if (what == What::optimizer || what == What::all) c.offload_optimizer = to;
  if ((what == What::parameters || what == What::all) && c.zero == Zero::parameters) c.offload_parameters = to;
  if (what == What::activations || (what == What::all && c.recompute.what == RecomputePolicy::What::block))
    c.offload_activations = to;
  return c;
}

class OffloadTest : public testing::TestWithParam<Setup> {};
std::string offload_case_name(const testing::TestParamInfo<Setup>& setup) {
  const auto& [mesh, what, to, precision] = setup.param;
  constexpr const char* kWhat[] = {"optimizer", "parameters", "activations", "all"};
  return fmt::format("{}_{}_{}_{}", mesh.name, kWhat[int(what)], to == OffloadTo::host ? "host" : "disk",
                     precision == Precision::fp32 ? "fp32" : "bf16");
}
INSTANTIATE_TEST_SUITE_P(Meshes, OffloadTest,
                         testing::Combine(testing::ValuesIn(kOffloadCases),
                                          testing::Values(What::optimizer, What::parameters, What::activations,
                                                          What::all),
                                          testing::Values(OffloadTo::host, OffloadTo::disk),
                                          testing::Values(Precision::fp32, Precision::bf16)),
                         offload_case_name);

TEST_P(OffloadTest, ChangesNoBit) {
  const auto& [c, what, to, precision] = GetParam();
  MeshCase near = c.mesh;
  near.precision = precision;
  if (what == What::parameters && near.zero != Zero::parameters) return;  // nothing that could be elsewhere
  const TrainedRun want = train_mesh(recipe_of(near), 3), got = train_mesh(recipe_of(offloaded(near, what, to)), 3);
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.grad_norms, want.grad_norms);
  EXPECT_TRUE(got.gradients == want.gradients);
  EXPECT_TRUE(got.weights == want.weights);
}

class OffloadOptimizersTest : public testing::TestWithParam<OptimizerKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, OffloadOptimizersTest,
                         testing::Values(OptimizerKind::adamw8bit, OptimizerKind::adafactor, OptimizerKind::lion,
                                         OptimizerKind::sgd, OptimizerKind::muon));

TEST_P(OffloadOptimizersTest, ChangesNoBit) {
  const MeshCase near{.shape = {.shard = 2}, .zero = Zero::parameters, .precision = Precision::bf16};
  const auto train = [&](const MeshCase& c) {
    Recipe recipe = recipe_of(c);
    recipe.model.layers = 2, recipe.model.hidden = 96, recipe.model.ffn = 128, recipe.model.head_dim = 0;
    complete(recipe.model);
    recipe.optimizer.kind = GetParam();
    return train_mesh(recipe, 3);
  };
  const TrainedRun want = train(near), got = train(offloaded(near, What::all, OffloadTo::host));
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_TRUE(got.gradients == want.gradients);
  EXPECT_TRUE(got.weights == want.weights);
}

int64_t allocated(int64_t bytes) {
  Allocator memory(Device::meta);
  const BufferRef block = memory.allocate(size_t(bytes));
  return memory.stats().live_bytes;
}

// The parts that a rank owns, in elements.
std::vector<int64_t> parts_of(const Recipe& recipe) {
  std::vector<int64_t> parts;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const SyntheticBatches batches = batches_of(recipe);
    Trainer trainer(rank.context, world, recipe, batches);
    if (world.rank() == 0)
      for (const Owned& o : trainer.optimizer().owned()) parts.push_back(o.master.numel());
  });
  return parts;
}

// state' = state - sum over buckets of [master apart] + m + v
// peak'  = max(peak - (state - state'), state' + 2 windows), a window holding these of the largest bucket
TEST(OffloadMemoryTest, TheOptimizersStateIsGone) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const MeshCase near{.precision = precision};
    const Recipe recipe = recipe_of(near);
    const MemoryEstimate before = estimate_memory(recipe, 0);
    const MemoryEstimate after = estimate_memory(recipe_of(offloaded(near, What::optimizer, OffloadTo::host)), 0);
    const int64_t apart = precision == Precision::fp32 ? 0 : 2;  // bytes of a master that are not its value's
    int64_t moved = 0, window = 0;
    for (const int64_t n : parts_of(recipe)) {
      moved += 2 * allocated(4 * n) + (apart ? allocated(apart * n) : 0);
      window = std::max(window, (2 * 4 + apart) * n);
    }
    EXPECT_EQ(after.state_bytes, before.state_bytes - moved);
    EXPECT_EQ(after.peak_bytes, std::max(before.peak_bytes - moved, after.state_bytes + 2 * allocated(window)));
  }
}

// state' = state - sum over buckets of this rank's part; what is near of it is at most that of two groups
TEST(OffloadMemoryTest, ThePartsOfParametersAreGone) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const MeshCase near{.shape = {.shard = 2}, .zero = Zero::parameters, .precision = precision};
    const Recipe recipe = recipe_of(near);
    const MemoryEstimate before = estimate_memory(recipe, 0);
    const MemoryEstimate after = estimate_memory(recipe_of(offloaded(near, What::parameters, OffloadTo::host)), 0);
    int64_t moved = 0, largest = 0;
    for (const int64_t n : parts_of(recipe)) {
      const int64_t bytes = allocated(n * int64_t(size_of(recipe.dtype())));
      moved += bytes, largest = std::max(largest, bytes);
    }
    EXPECT_EQ(after.state_bytes, before.state_bytes - moved);
    EXPECT_LE(after.peak_bytes, before.peak_bytes - moved + 2 * largest);
  }
}

// Of L saved inputs at most two are near.
TEST(OffloadMemoryTest, SavedInputsAreGone) {
  const MeshCase near{.recompute = {RecomputePolicy::What::block}};
  const auto recipe_with = [&](OffloadTo to) {
    Recipe r = recipe_of(offloaded(near, What::activations, to));
    r.model.layers = 12;
    return r;
  };
  const Recipe recipe = recipe_with(OffloadTo::none);
  const int64_t before = estimate_memory(recipe, 0).peak_bytes;
  const int64_t after = estimate_memory(recipe_with(OffloadTo::host), 0).peak_bytes;
  const int64_t input = allocated(recipe.train.micro_batch * recipe.train.seq_len * recipe.model.hidden * 4);
  EXPECT_LE(after, before - (recipe.model.layers - 2) * input);
}

// m and v of each bucket come and go once in a step; so do the inputs of all blocks but the last, which is stored and
// used where it is.
TEST(OffloadTrafficTest, NothingMovesTwice) {
  const MeshCase near{.recompute = {RecomputePolicy::What::block}};
  const Recipe recipe = recipe_of(offloaded(near, What::all, OffloadTo::host));
  const auto world = make_single_communicator();
  TestRank rank(cpu_kernels());
  const SyntheticBatches batches = batches_of(recipe);
  Trainer trainer(rank.context, *world, recipe, batches);
  trainer.step();
  const FarStats before = trainer.far_stats();
  trainer.step();
  const FarStats after = trainer.far_stats();
  int64_t states = 0;
  for (const Owned& o : trainer.optimizer().owned()) states += 2 * int64_t(o.master.bytes());
  const int64_t input = recipe.train.micro_batch * recipe.train.seq_len * recipe.model.hidden * 4;
  EXPECT_EQ(after.stored_bytes - before.stored_bytes, states + recipe.model.layers * input);
  EXPECT_EQ(after.loaded_bytes - before.loaded_bytes, states + (recipe.model.layers - 1) * input);
  EXPECT_EQ(after.reserved_bytes, before.reserved_bytes);
}

TEST(OffloadEvaluationTest, SeesTheSameWeights) {
  const MeshCase near{.shape = {.shard = 2}, .zero = Zero::parameters, .precision = Precision::bf16};
  const auto losses_of = [](const MeshCase& c) {
    const Recipe recipe = recipe_of(c);
    std::vector<double> losses;
    run_ranks(2, [&](Communicator& world) {
      TestRank rank(cpu_kernels());
      const SyntheticBatches batches = batches_of(recipe);
      Trainer trainer(rank.context, world, recipe, batches);
      Batch batch;
      batches.fill(7, 0, int32_t(recipe.train.micro_batch), batch);
      for (int i = 0; i < 3; ++i) {
        const double loss = trainer.evaluate(batch);
        if (world.rank() == 0) losses.push_back(loss);
        trainer.step();
      }
    });
    return losses;
  };
  EXPECT_EQ(losses_of(offloaded(near, What::all, OffloadTo::host)), losses_of(near));
}

TEST(OffloadCheckpointTest, AreThoseOfANearRun) {
  const ByteTokenizer tokenizer;
  MeshCase near{.shape = {.shard = 2}, .zero = Zero::parameters, .precision = Precision::bf16};
  const MeshCase far = offloaded(near, What::all, OffloadTo::disk);
  const TemporaryFolder folder;
  // Two steps, a checkpoint, and two more steps from it.
  const auto train = [&](const MeshCase& first, const MeshCase& second, const std::string& name) {
    TrainedRun out;
    run_ranks(2, [&](Communicator& world) {
      CheckpointStore store(folder / name, {});
      const Recipe before = recipe_of(first), after = recipe_of(second);
      const SyntheticBatches batches = batches_of(before);
      std::string path = folder / name;
      {
        TestRank rank(cpu_kernels());
        Trainer trainer(rank.context, world, before, batches);
        trainer.step(), trainer.step();
        SavedRun saved(trainer, before, tokenizer);
        save_now(saved, trainer, store);
        world.barrier();
      }
      TestRank rank(cpu_kernels());
      Trainer trainer(rank.context, world, after, batches);
      SavedRun(trainer, after, tokenizer).load(Checkpoint::open(store.path_of(2)));
      trainer.step(), trainer.step();
      TrainedRun mine;
      add_tensors(after, trainer, mine);
      if (world.rank() == 0) out = std::move(mine);
    });
    return out;
  };
  const TrainedRun want = train(near, near, "near");
  for (const bool saves_far : {false, true}) {
    const TrainedRun got = train(saves_far ? far : near, saves_far ? near : far, saves_far ? "far" : "to_far");
    EXPECT_TRUE(got.weights == want.weights) << saves_far;
    EXPECT_TRUE(got.gradients == want.gradients) << saves_far;
  }
}

void expect_recipe_refused(const std::string& text, const std::string& what) {
  Toml toml = Toml::parse("[data]\ntrain = \"x\"\n[train]\nglobal_batch = 4\n" + text, "test.toml");
  try {
    read_recipe(toml);
    ADD_FAILURE() << "accepted: " << text;
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
  }
}

TEST(OffloadRecipeTest, SaysWhatIsImpossible) {
  expect_recipe_refused("[mesh]\noffload_parameters = \"host\"", "mesh.zero = 3");
  expect_recipe_refused("[mesh]\noffload_activations = \"disk\"", "mesh.recompute = \"block\"");
  expect_recipe_refused("[mesh]\noffload_optimizer = \"tape\"", "mesh.offload_optimizer");
}

TEST(OffloadRecipeTest, ReadsWhatGoesWhere) {
  Toml toml = Toml::parse(
      "[data]\ntrain = \"x\"\n[train]\nglobal_batch = 4\n[log]\ndir = \"here\"\n[mesh]\nzero = 3\nrecompute = "
      "\"every:2\"\noffload_optimizer = \"disk\"\noffload_parameters = \"host\"\noffload_activations = \"host\"",
      "test.toml");
  const OffloadConfig c = read_recipe(toml).mesh.offload;
  EXPECT_EQ(c.optimizer, OffloadTo::disk);
  EXPECT_EQ(c.parameters, OffloadTo::host);
  EXPECT_EQ(c.activations, OffloadTo::host);
  EXPECT_EQ(c.dir, "here/offload");
}

}  // namespace
}  // namespace weft
