// Twenty steps on mesh A, saved at ten; the last ten again on mesh B from what A has saved.
#include "base/temporary_folder.h"
#include "train/training_setup.h"

namespace weft {
namespace {

constexpr int kSteps = 10;  // before and after

struct On {
  MeshShape mesh;
  Zero zero = Zero::none;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  bool sequence_parallel = false;
  int64_t accumulation = 1;
};

struct PairCase {
  std::string name;
  bool has_experts;
  On a, b;
};

const PairCase kMeshPairs[] = {
    {"dp2_to_one", false, {.mesh = {.shard = 2}}, {}},
    {"one_to_zero3", false, {}, {.mesh = {.shard = 4}, .zero = Zero::parameters}},
    {"zero3_to_tp2", false, {.mesh = {.shard = 4}, .zero = Zero::parameters}, {.mesh = {.tp = 2}}},
    {"tp3_to_pp2", false, {.mesh = {.tp = 3}}, {.mesh = {.pp = 2}, .accumulation = 4}},
    {"pp2_to_dp4_zero1",
     false,
     {.mesh = {.pp = 2}, .accumulation = 2},
     {.mesh = {.shard = 4}, .zero = Zero::optimizer}},
    {"zb_h1_to_gpipe",
     false,
     {.mesh = {.pp = 2, .shard = 2}, .schedule = ScheduleKind::zb_h1, .accumulation = 4},
     {.mesh = {.pp = 2}, .schedule = ScheduleKind::gpipe, .accumulation = 2}},
    {"hsdp_to_cp2", false, {.mesh = {.replicate = 2, .shard = 2}, .zero = Zero::gradients}, {.mesh = {.cp = 2}}},
    {"cp4_to_tp2_sp", false, {.mesh = {.cp = 4}}, {.mesh = {.shard = 2, .tp = 2}, .sequence_parallel = true}},
    {"eight_to_three",
     false,
     {.mesh = {.pp = 2, .shard = 2, .tp = 2}, .zero = Zero::parameters, .accumulation = 2},
     {.mesh = {.tp = 3}}},
    {"experts_ep2_to_one", true, {.mesh = {.shard = 2, .ep = 2}}, {}},
    {"experts_one_to_ep4", true, {}, {.mesh = {.shard = 4, .ep = 4}, .zero = Zero::parameters}},
    {"experts_tp2_to_pp2_ep2",
     true,
     {.mesh = {.tp = 2}},
     {.mesh = {.pp = 2, .shard = 2, .ep = 2}, .accumulation = 2}},
    {"experts_ep2_cp2_to_tp2",
     true,
     {.mesh = {.shard = 2, .cp = 2, .ep = 4}},
     {.mesh = {.shard = 2, .tp = 2, .ep = 2}}},
    {"experts_zero2_to_zero3",
     true,
     {.mesh = {.shard = 2}, .zero = Zero::gradients},
     {.mesh = {.replicate = 2, .shard = 2, .ep = 2}, .zero = Zero::parameters}},
};

Recipe resumed_recipe(const On& on, bool has_experts) {
  Recipe r = small_recipe("llama", Precision::fp32, on.mesh.dp(), on.accumulation);
  if (has_experts) r.model.experts = 5, r.model.expert_ffn = 8, r.model.router_bias_rate = 0.01f;
  complete(r.model);
  r.optimizer.adamw.eps = 1e-4;
  r.mesh.shape = on.mesh, r.mesh.zero = on.zero, r.mesh.schedule = on.schedule;
  r.mesh.sequence_parallel = on.sequence_parallel;
  return r;
}

std::vector<double> train_ten(const Recipe& recipe, const std::string& folder) {
  return losses_of(go_on_in(folder, recipe, kSteps));
}

class ResumeTest : public testing::TestWithParam<PairCase> {};
INSTANTIATE_TEST_SUITE_P(Pairs, ResumeTest, testing::ValuesIn(kMeshPairs),
                         [](const auto& test) { return test.param.name; });

TEST_P(ResumeTest, GoesOnAsIfItHadNeverStopped) {
  const auto& [name, has_experts, a, b] = GetParam();
  const TemporaryFolder unbroken, moved, stayed;
  const Recipe on_a = resumed_recipe(a, has_experts), on_b = resumed_recipe(b, has_experts);

  train_ten(on_a, unbroken.path());
  const std::vector<double> here = train_ten(on_a, unbroken.path());
  train_ten(on_a, moved.path());
  const std::vector<double> there = train_ten(on_b, moved.path());
  for (int i = 0; i < kSteps; ++i)
    EXPECT_NEAR(there[size_t(i)], here[size_t(i)], 1e-5 * here[size_t(i)]) << "step " << kSteps + i + 1;

  // On the same mesh, to the bit: against a run that never stopped.
  const SyntheticBatches batches = batches_of(on_a);
  std::vector<double> never_stopped;
  run_ranks(on_a.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    Trainer trainer(rank.context, world, on_a, batches);
    for (int i = 0; i < 2 * kSteps; ++i) {
      const double loss = trainer.step().loss;
      if (world.rank() == 0 && i >= kSteps) never_stopped.push_back(loss);
    }
  });
  EXPECT_EQ(here, never_stopped);
}

}  // namespace
}  // namespace weft
