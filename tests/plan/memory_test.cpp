// What a rank is said to hold, by use.
#include "train/mesh_cases.h"
#include "weft/comm/single/single.h"
#include "weft/plan/continued_step.h"
#include "weft/plan/round_plan.h"
#include "weft/plan/trace_step.h"
#include "weft/rollout/engine_answerer.h"
#include "weft/train/distill_objective.h"
#include "weft/train/launch.h"
#include "weft/train/objectives.h"

namespace weft::plan {
namespace {

// bf16 weights, f32 gradients, and the masters' lower halves and f32 moments, cut as ZeRO-2 cuts them.
TEST(PlannedMemoryTest, IsSplitByUse) {
  const Recipe recipe = recipe_of({.shape = {.shard = 2}, .zero = Zero::gradients, .precision = Precision::bf16});
  const StepTrace trace = trace_step(recipe, 0);
  const auto params = double(recipe.model.num_params());
  const MemorySplit& s = trace.peak.split;
  EXPECT_NEAR(double(s[MemoryUse::weights]), 2 * params, 0.2 * params);
  EXPECT_NEAR(double(s[MemoryUse::gradients]), 4 * params / 2, 0.4 * params);
  EXPECT_NEAR(double(s[MemoryUse::optimizer]), 10 * params / 2, params);
  EXPECT_GT(s[MemoryUse::activations], 0);
  EXPECT_GT(s[MemoryUse::communication], 0);
}

ModelConfig teacher_config() {
  Recipe r = small_recipe("llama", Precision::fp32, 1);
  r.model.hidden = 48, r.model.heads = 6, r.model.kv_heads = 3, r.model.head_dim = 8;
  complete(r.model);
  return r.model;
}

struct ContinuedCase {
  const char* name;
  MeshCase mesh;
  bool has_teacher = false;
};
class ContinuedMemoryTest : public testing::TestWithParam<ContinuedCase> {};
constexpr RecomputePolicy kBlocks{.what = RecomputePolicy::What::block};
const ContinuedCase kContinued[] = {
    {"one_rank", {}},
    {"bf16_zero2", {.shape = {.shard = 2}, .zero = Zero::gradients, .precision = Precision::bf16}},
    {"zero3", {.shape = {.shard = 2}, .zero = Zero::parameters, .recompute = kBlocks}},
    {"pp2_1f1b", {.shape = {.pp = 2}}},
    {"pp2_interleaved", {.shape = {.pp = 2}, .schedule = ScheduleKind::interleaved, .virtual_stages = 2}},
    {"pp4_gpipe", {.shape = {.pp = 4}, .schedule = ScheduleKind::gpipe}},
    {"pp2_zb_h1", {.shape = {.pp = 2}, .schedule = ScheduleKind::zb_h1}},
    {"gpipe_inputs_on_the_host",
     {.shape = {.pp = 2},
      .schedule = ScheduleKind::gpipe,
      .recompute = kBlocks,
      .offload_optimizer = OffloadTo::host,
      .offload_activations = OffloadTo::host}},
    {"teacher", {}, true},
    {"teacher_pp2", {.shape = {.pp = 2}}, true},
};
INSTANTIATE_TEST_SUITE_P(Meshes, ContinuedMemoryTest, testing::ValuesIn(kContinued),
                         [](const auto& test) { return test.param.name; });

// A step that is played with fewer micro-batches takes, to the byte, what the whole step does.
TEST_P(ContinuedMemoryTest, IsThatOfTheWholeStep) {
  const ContinuedCase& c = GetParam();
  const ModelConfig teacher = teacher_config();
  for (const int64_t accumulation : {6, 16, 34}) {
    Recipe recipe = recipe_of(c.mesh);
    recipe.train.micro_batch = 1;
    recipe = with_accumulation(recipe, accumulation);
    const TraceOptions options{
        .has_events = false, .packs_weights = true, .teacher = c.has_teacher ? &teacher : nullptr};
    const std::vector<StepTrace> whole = trace_stages(recipe, options), continued = trace_memory(recipe, options);
    ASSERT_EQ(continued.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(continued[i].peak.split.bytes, whole[i].peak.split.bytes) << accumulation << " stage " << i;
      EXPECT_EQ(continued[i].host_bytes, whole[i].host_bytes) << accumulation << " stage " << i;
      EXPECT_EQ(continued[i].state_bytes, whole[i].state_bytes) << accumulation << " stage " << i;
    }
  }
}

// What a run on one rank takes at most in a step, with `make` giving the trainer its objective.
struct Taken {
  int64_t peak = 0, host = 0;
};
template <class Make>
Taken taken_by(const Recipe& recipe, const BatchSource& batches, Make&& make) {
  const auto world = make_single_communicator();
  TestRank rank(cpu_kernels());
  Trainer trainer(rank.context, *world, recipe, batches);
  const std::unique_ptr<Objective> objective = make(trainer);
  trainer.set_objective(objective.get());
  trainer.step();
  rank.allocator.reset_peak();
  trainer.step();
  return {rank.allocator.stats().peak_bytes, trainer.far_stats().reserved_bytes};
}

StepTrace predicted(const Recipe& recipe, const ModelConfig* teacher = nullptr) {
  return trace_memory(recipe, {.packs_weights = true, .teacher = teacher}).front();
}

TEST(PlannedMemoryTest, CountsWhatIsOffloadedToTheHostAndNotWhatIsOnADisk) {
  MeshCase c{.accumulation = 2,
             .recompute = kBlocks,
             .offload_optimizer = OffloadTo::host,
             .offload_activations = OffloadTo::host};
  const Recipe recipe = recipe_of(c);
  const Taken taken = taken_by(recipe, batches_of(recipe), [](Trainer&) { return nullptr; });
  const StepTrace trace = predicted(recipe);
  EXPECT_GT(trace.host_bytes, 8 * recipe.model.num_params()) << "m and v alone";
  EXPECT_EQ(trace.host_bytes, taken.host);
  EXPECT_EQ(trace.peak.split.total(), taken.peak);
  c.offload_optimizer = OffloadTo::disk;
  EXPECT_LT(predicted(recipe_of(c)).host_bytes, trace.host_bytes - 8 * recipe.model.num_params() + 1);
  c.offload_activations = OffloadTo::disk;
  EXPECT_EQ(predicted(recipe_of(c)).host_bytes, 0);
}

TEST(PlannedMemoryTest, CountsATeacher) {
  const TemporaryFolder folder;
  Recipe saved = small_recipe("llama", Precision::fp32, 1);
  saved.model = teacher_config();
  const std::unique_ptr<ModelSource> teacher = open_model(saved_model(saved, folder.path()));
  Recipe recipe = recipe_of({.accumulation = 2});
  recipe.distill = {.teacher = teacher->path(), .alpha = 0.6, .temperature = 1.5};
  const SyntheticBatches batches = batches_of(recipe);
  const Taken taken = taken_by(recipe, batches, [&](Trainer& trainer) {
    return std::make_unique<DistillObjective>(recipe, batches, *teacher, trainer);
  });
  const ModelConfig config = model_config_of(teacher->path());
  EXPECT_EQ(predicted(recipe, &config).peak.split.total(), taken.peak);
  EXPECT_GT(taken.peak, predicted(recipe).peak.split.total() + 4 * config.num_params());
}

// All tokens of both ranks go to the first two of four experts, which the first rank has.
TEST(PlannedMemoryTest, CountsTheRankWhoseExpertsAreTheBusiest) {
  for (const RecomputePolicy recompute : {RecomputePolicy{}, kBlocks}) {
    Recipe recipe = recipe_of({.shape = {.shard = 2, .ep = 2}, .recompute = recompute, .experts = 4});
    recipe.optimizer.schedule = {.decay = Decay::constant, .lr = 0};
    const SyntheticBatches batches = batches_of(recipe);
    std::vector<int64_t> peaks(2);
    run_ranks(2, [&](Communicator& world) {
      TestRank rank(cpu_kernels());
      Trainer trainer(rank.context, world, recipe, batches);
      zero_routers(trainer);
      for (int i = 0; i < 2; ++i) {
        const StepResult result = trainer.step();
        EXPECT_EQ(result.expert_load.value_or(0), 2);
        EXPECT_EQ(result.expert_rank_load.value_or(0), 2);
      }
      peaks[size_t(world.rank())] = rank.allocator.stats().peak_bytes;
    });
    const auto planned = [&](double load) {
      return trace_step(recipe, 0, {.has_events = false, .packs_weights = true, .expert_load = load})
          .peak.split.total();
    };
    EXPECT_EQ(planned(2), peaks[0]);
    EXPECT_EQ(planned(1000), peaks[0]) << "more than all do not come";
    EXPECT_EQ(planned(0), peaks[1]);
    EXPECT_GT(planned(1), peaks[1]);
  }
}

struct RoundCase {
  const char* name;
  MeshCase mesh;
};
class RoundMemoryTest : public testing::TestWithParam<RoundCase> {};
INSTANTIATE_TEST_SUITE_P(Meshes, RoundMemoryTest,
                         testing::Values(RoundCase{"one", {}}, RoundCase{"tp2", {.shape = {.tp = 2}}},
                                         RoundCase{"pp2", {.shape = {.pp = 2}, .accumulation = 2}},
                                         RoundCase{"zero3", {.shape = {.shard = 2}, .zero = Zero::parameters}},
                                         RoundCase{"experts", {.experts = 4}},
                                         RoundCase{"states", {.family = "qwen3_5"}},
                                         RoundCase{"bf16", {.precision = Precision::bf16}}),
                         [](const auto& test) { return test.param.name; });

// Beside what is held between steps; the engine's steps may be smaller than the largest.
TEST_P(RoundMemoryTest, CoversWhatARoundTakes) {
  const TemporaryFolder folder;
  Recipe recipe = recipe_of(GetParam().mesh);
  recipe.model.vocab = 259, recipe.model.context = 256, recipe.train.seq_len = 256;
  recipe.policy = PolicyConfig::of(PolicyMethod::grpo);
  recipe.policy.reward = RewardKind::contains, recipe.policy.answers = 4, recipe.policy.max_tokens = 200;
  recipe.data.train = folder.path() + "/asked.jsonl", recipe.log.dir = recipe.data.cache_dir = folder.path();
  recipe.data.valid_fraction = 0;
  write_file_atomically(FileSystem::real(), recipe.data.train,
                        "{\"prompt\": \"" + std::string(50, 'x') + "\", \"answer\": \"e\"}\n");
  const Dataset data = open_data(recipe);
  const std::vector<int64_t> most = round_memory(recipe, true);
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    const auto batches = batches_for(recipe, data);
    Trainer trainer(rank.context, world, recipe, *batches);
    const auto objective =
        make_objective(recipe, {.data = data, .batches = *batches, .make_answerer = make_engine_answerer}, trainer);
    trainer.set_objective(objective.get());
    trainer.step();
    const int64_t held = rank.allocator.stats().live_bytes;
    rank.allocator.reset_peak();
    EXPECT_TRUE(objective->begin_step(trainer, trainer.next_step()));
    EXPECT_EQ(rank.allocator.stats().live_bytes, held);
    const int64_t taken = rank.allocator.stats().peak_bytes - held;
    const int64_t planned = most[size_t(trainer.mesh().place().pp)];
    EXPECT_LE(taken, planned);
    EXPECT_GE(double(taken), 0.7 * double(planned));
  });
}

TEST(PlannedMemoryTest, CountsAnswersThatAreCompared) {
  const TemporaryFolder folder;
  Recipe recipe = recipe_of({.accumulation = 2});
  recipe.preference.method = PreferenceMethod::dpo;
  std::string pairs;
  for (int i = 0; i < 12; ++i)
    pairs += fmt::format("{{\"prompt\": \"{}:\", \"chosen\": \"yes yes\", \"rejected\": \"no\"}}\n", i);
  recipe.data.train = folder.path() + "/pairs.jsonl", recipe.data.cache_dir = folder.path() + "/cache";
  recipe.data.valid_fraction = 0, recipe.log.dir = folder.path();
  write_file_atomically(FileSystem::real(), recipe.data.train, std::string_view(pairs));
  const Dataset data = open_data(recipe);
  recipe.model.vocab = 0;
  set_vocab(recipe, data.tokenizer->vocab_size());
  const auto batches = batches_for(recipe, data.train);
  const Taken taken = taken_by(recipe, *batches, [&](Trainer& trainer) {
    return make_objective(recipe, {.data = data, .batches = *batches}, trainer);
  });
  EXPECT_EQ(predicted(recipe).peak.split.total(), taken.peak);
}

}  // namespace
}  // namespace weft::plan
