// Meshes of every strategy against one rank: loss, every gradient and the updated weights.
#include "train/training_setup.h"

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

TEST_P(MeshesTest, EqualOneRank) {
  MeshCase one = GetParam();
  one.shape = {}, one.zero = Zero::none, one.sequence_parallel = false, one.virtual_stages = 1, one.accumulation = 1;
  one.recompute = RecomputePolicy::What::nothing, one.schedule = ScheduleKind::one_f_one_b;
  const Trained want = train_threads(recipe_of(one), 3);
  const Trained got = train_threads(recipe_of(GetParam()), 3);
  const double tolerance = GetParam().precision == Precision::fp32 ? 1e-5 : 2e-2;
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], tolerance * want.losses[i]) << "step " << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], tolerance * want.norms[i]) << "step " << i;
  }
  ASSERT_EQ(got.names, want.names);
  for (size_t p = 0; p < want.names.size(); ++p) {
    if (want.names[p].ends_with("key.bias")) continue;
    EXPECT_LT(relative_difference(got.gradients[p], want.gradients[p]), tolerance) << want.names[p];
    EXPECT_LT(relative_difference(got.weights[p], want.weights[p]), tolerance) << want.names[p];
  }
}

}  // namespace
}  // namespace weft
