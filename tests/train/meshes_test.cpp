// Meshes of every strategy against one rank: loss, every gradient and the updated weights.
#include "train/training_setup.h"
#include "weft/train/verify.h"

namespace weft {
namespace {

struct MeshCase {
  const char* family = "llama";
  MeshShape shape;
  Zero zero = Zero::none;
  bool sequence_parallel = false;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int virtual_stages = 1;
  int64_t accumulation = 1;
  RecomputePolicy::What recompute = RecomputePolicy::What::nothing;
  Precision precision = Precision::fp32;
  float dropout = 0;
  bool tie = false;
  ContextMode cp_mode = ContextMode::ring;
};

std::string name_of(const MeshCase& c) {
  const MeshShape& s = c.shape;
  std::string schedule(weft::name_of(c.schedule));
  std::replace(schedule.begin(), schedule.end(), '-', '_');
  return fmt::format("{}_pp{}r{}s{}cp{}tp{}ep{}_zero{}{}_{}_v{}_acc{}_re{}_{}{}{}_m{}", c.family, s.pp, s.replicate,
                     s.shard, s.cp, s.tp, s.ep, int(c.zero), c.sequence_parallel ? "_sp" : "", schedule,
                     c.virtual_stages, c.accumulation, int(c.recompute),
                     c.precision == Precision::fp32 ? "fp32" : "bf16", c.dropout > 0 ? "_dropout" : "",
                     c.tie ? "_tied" : "", int(c.cp_mode));
}

Recipe recipe_of(const MeshCase& c) {
  Recipe r = small_recipe(c.family, c.precision, c.shape.dp(), c.accumulation, 8);
  r.model.layers = 4;
  r.model.tie_embeddings = c.tie;
  r.model.dropout = c.dropout;
  r.mesh.shape = c.shape;
  r.mesh.zero = c.zero;
  r.mesh.cp_mode = c.cp_mode;
  r.mesh.sequence_parallel = c.sequence_parallel;
  r.mesh.schedule = c.schedule;
  r.mesh.virtual_stages = c.virtual_stages;
  r.train.recompute.what = c.recompute;
  // Adam divides by the size of the gradient: where that is all but zero, rounding errors would become whole steps.
  r.optimizer.adamw.eps = c.precision == Precision::fp32 ? 1e-4 : 1e-2;
  return r;
}

class MeshesTest : public testing::TestWithParam<MeshCase> {};

constexpr auto kSecond = RecomputePolicy::What::block;
const MeshCase kCases[] = {
    {.shape = {.shard = 2}, .zero = Zero::optimizer},
    {.shape = {.shard = 2}, .zero = Zero::gradients, .accumulation = 2},
    {.shape = {.shard = 4}, .zero = Zero::parameters, .accumulation = 2},
    {.family = "gpt2", .shape = {.shard = 2}, .zero = Zero::parameters, .tie = true},
    {.shape = {.replicate = 2, .shard = 2}, .zero = Zero::parameters},
    {.shape = {.replicate = 2, .shard = 2}, .zero = Zero::optimizer, .accumulation = 2},
    {.shape = {.tp = 2}},
    {.family = "gpt2", .shape = {.tp = 2}, .tie = true},
    {.shape = {.tp = 2}, .sequence_parallel = true},
    {.family = "gpt2", .shape = {.tp = 2}, .sequence_parallel = true, .tie = true},
    {.shape = {.tp = 3}},
    {.shape = {.tp = 4}, .sequence_parallel = true},
    {.shape = {.tp = 8}},
    {.shape = {.pp = 2}, .accumulation = 4},
    {.shape = {.pp = 4}, .schedule = ScheduleKind::gpipe, .accumulation = 4},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::interleaved, .virtual_stages = 2, .accumulation = 4},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::zb_h1, .accumulation = 4},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::zbv, .virtual_stages = 2, .accumulation = 4},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::zbv, .virtual_stages = 2, .accumulation = 4, .tie = true},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::dualpipe_v, .virtual_stages = 2, .accumulation = 4},
    {.family = "gpt2", .shape = {.pp = 2}, .accumulation = 2, .tie = true},
    {.family = "gpt2", .shape = {.pp = 2, .shard = 2}, .zero = Zero::parameters, .accumulation = 2, .tie = true},
    {.shape = {.cp = 2}, .cp_mode = ContextMode::ring},
    {.shape = {.cp = 4}, .dropout = 0.2f, .cp_mode = ContextMode::ring},
    {.shape = {.cp = 2}, .dropout = 0.2f, .cp_mode = ContextMode::ulysses},
    {.shape = {.cp = 4}, .cp_mode = ContextMode::ulysses},
    {.shape = {.cp = 2, .tp = 2}, .sequence_parallel = true, .dropout = 0.2f, .cp_mode = ContextMode::allgather},
    {.shape = {.shard = 2, .cp = 2, .tp = 2}, .zero = Zero::parameters, .sequence_parallel = true, .dropout = 0.2f},
    {.shape = {.pp = 2, .shard = 2, .tp = 2},
     .zero = Zero::gradients,
     .sequence_parallel = true,
     .schedule = ScheduleKind::zb_h1,
     .accumulation = 4,
     .recompute = kSecond},
    {.family = "gpt2",
     .shape = {.pp = 2, .shard = 2, .tp = 2},
     .zero = Zero::parameters,
     .sequence_parallel = true,
     .accumulation = 2,
     .recompute = RecomputePolicy::What::attention,
     .precision = Precision::bf16,
     .tie = true},
};
std::string case_name(const testing::TestParamInfo<MeshCase>& info) { return name_of(info.param); }
INSTANTIATE_TEST_SUITE_P(Table, MeshesTest, testing::ValuesIn(kCases), case_name);

TrainedRun train_mesh(const Recipe& recipe) {
  const SyntheticBatches batches = batches_of(recipe);
  TrainedRun run;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    TrainedRun mine = train_some(recipe, batches, world, 3, 1);
    if (world.rank() == 0) run = std::move(mine);
  });
  return run;
}

TEST_P(MeshesTest, EqualOneRank) {
  MeshCase one = GetParam();
  one.shape = {}, one.zero = Zero::none, one.sequence_parallel = false, one.virtual_stages = 1, one.accumulation = 1;
  one.recompute = RecomputePolicy::What::nothing, one.schedule = ScheduleKind::one_f_one_b;
  const Recipe recipe = recipe_of(GetParam());
  const TrainedRun want = train_mesh(recipe_of(one)), got = train_mesh(recipe);
  const Difference d = difference(got, want);
  const double tolerance = tolerance_of(GetParam().precision);
  EXPECT_LE(d.loss, tolerance);
  EXPECT_LE(d.gradient, tolerance) << d.gradient_name;
  EXPECT_LE(d.weight, tolerance) << d.weight_name;
}

}  // namespace
}  // namespace weft
