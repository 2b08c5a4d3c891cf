// Planned beside measured step times on this machine, over meshes of 1, 2 and 4 ranks.
#include <cstdlib>

#include "train/training_setup.h"
#include "weft/base/machine.h"
#include "weft/comm/run_world.h"
#include "weft/plan/measure_machine.h"
#include "weft/plan/step_plan.h"

namespace weft::plan {
namespace {

struct MeshCase {
  const char* name;
  const char* family;
  int64_t hidden, seq_len, rows;
  MeshConfig mesh;
  int64_t micro_batches = 1;
  RecomputePolicy::What recompute = RecomputePolicy::What::nothing;
};

Recipe recipe_of(const MeshCase& c) {
  Recipe r;
  ModelConfig& m = r.model = family_defaults(c.family);
  m.layers = 4, m.hidden = c.hidden, m.heads = c.hidden / 64, m.kv_heads = m.heads, m.vocab = 2048;
  m.context = c.seq_len;
  if (m.norm == NormKind::rms) m.ffn = c.hidden * 8 / 3 / 32 * 32;
  complete(m);
  r.mesh = c.mesh;
  r.train = {.steps = 100, .seq_len = c.seq_len, .global_batch = c.rows, .accumulation = c.micro_batches};
  r.train.micro_batch = c.rows / c.mesh.shape.dp() / c.micro_batches;
  r.train.recompute = {c.recompute};
  r.train.precision = Precision::fp32;
  r.optimizer.schedule = {.decay = Decay::constant, .lr = 1e-4, .steps = 100};
  return r;
}

// 10 meshes on 3 models.
std::vector<MeshCase> cases() {
  struct Mesh {
    const char* name;
    MeshShape shape;
    Zero zero = Zero::none;
    ScheduleKind schedule = ScheduleKind::one_f_one_b;
    int64_t micro_batches = 1;
    RecomputePolicy::What recompute = RecomputePolicy::What::nothing;
  };
  const Mesh meshes[] = {{"one rank", {}},
                         {"one rank, 4 micro-batches", {}, Zero::none, {}, 4},
                         {"one rank, recomputed", {}, Zero::none, {}, 1, RecomputePolicy::What::block},
                         {"dp=2", {.shard = 2}},
                         {"dp=2 zero=3", {.shard = 2}, Zero::parameters},
                         {"tp=2", {.tp = 2}},
                         {"pp=2", {.pp = 2}, Zero::none, ScheduleKind::one_f_one_b, 4},
                         {"dp=4 zero=1", {.shard = 4}, Zero::optimizer},
                         {"dp=2 tp=2", {.shard = 2, .tp = 2}},
                         {"pp=2 dp=2", {.pp = 2, .shard = 2}, Zero::none, ScheduleKind::one_f_one_b, 2}};
  struct Model {
    const char* family;
    int64_t hidden, seq_len;
  };
  std::vector<MeshCase> all;
  for (const Model& model : {Model{"llama", 256, 128}, Model{"llama", 512, 256}, Model{"gpt2", 384, 128}})
    for (const Mesh& m : meshes) {
      MeshCase c{m.name, model.family, model.hidden, model.seq_len, 8, {}, m.micro_batches, m.recompute};
      c.mesh.shape = m.shape, c.mesh.zero = m.zero;
      if (m.shape.pp > 1) c.mesh.schedule = m.schedule;
      all.push_back(c);
    }
  return all;
}

// The quickest of the steps of half a second: the machine while nothing else slows it down.
double measured_step_s(const Recipe& recipe) {
  double result = INFINITY;
  run_world(recipe.mesh.size(), [&](Communicator& world) {
    TestRank rank(cpu_kernels(), std::max(1, usable_cores() / world.size()));
    const SyntheticBatches batches = batches_of(recipe);
    Trainer trainer(rank.context, world, recipe, batches);
    trainer.step(), trainer.step();
    const auto begin = std::chrono::steady_clock::now();
    double all = 0;
    for (int steps = 0; steps < 4 || all < 0.5; ++steps) {
      world.barrier();
      const auto step = std::chrono::steady_clock::now();
      trainer.step();
      world.barrier();
      const auto now = std::chrono::steady_clock::now();
      if (world.rank() == 0) result = std::min(result, std::chrono::duration<double>(now - step).count());
      all = std::chrono::duration<double>(now - begin).count();
      const Tensor same = rank.context.empty(DType::f64, {1});  // ranks agree when to stop
      *same.data<double>() = all;
      world.all_reduce(same, Reduction::max);
      all = *same.data<double>();
    }
  });
  return result;
}

TEST(TimeHereTest, StepsTakeWhatIsPlanned) {
  if (!std::getenv("WEFT_TIME_HERE")) GTEST_SKIP() << "takes minutes of a quiet machine: set WEFT_TIME_HERE=1";
  Cluster cluster{.hardware = measure_machine(), .num_devices = 1};
  fmt::print("{}", hardware_toml(cluster.hardware));
  const std::vector<MeshCase> meshes = cases();
  std::vector<double> measured(meshes.size(), INFINITY), errors;
  constexpr int kRounds = 3;  // a while in which the machine is slow then spoils no mesh
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < meshes.size(); ++i)
      measured[i] = std::min(measured[i], measured_step_s(recipe_of(meshes[i])));
  for (size_t i = 0; i < meshes.size(); ++i) {
    const MeshCase& c = meshes[i];
    const Recipe recipe = recipe_of(c);
    cluster.num_devices = recipe.mesh.size();
    const double planned = plan_step(recipe, cluster).step_s, error = planned / measured[i] - 1;
    errors.push_back(std::abs(error));
    fmt::print("{:<6} {:>4} {:<26} planned {:>8.2f} ms, measured {:>8.2f} ms, {:>+6.1f}%\n", c.family, c.hidden,
               c.name, planned * 1e3, measured[i] * 1e3, 100 * error);
  }
  std::ranges::sort(errors);
  const double median = errors[errors.size() / 2];
  fmt::print("{} meshes: median error {:.1f}%, 90th percentile {:.1f}%\n", errors.size(), 100 * median,
             100 * errors[errors.size() * 9 / 10]);
  EXPECT_LE(median, 0.08);
}

}  // namespace
}  // namespace weft::plan
