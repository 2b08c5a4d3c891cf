// What ranks hold, as the allocator counts it, beside the formulas.
#include "train/mesh_cases.h"
#include "weft/parallel/pipeline/check_schedule.h"
#include "weft/train/memory_estimate.h"

namespace weft {
namespace {

// Weights, gradients and optimizer state in fp32: 4 + 4 + 8 bytes a parameter.
constexpr int64_t kStateBytes = 16;

Recipe larger_recipe(int dp, Zero zero, Precision precision) {
  Recipe r = small_recipe("llama", precision, dp);
  r.model.layers = 2, r.model.hidden = 128, r.model.heads = 4, r.model.kv_heads = 2, r.model.ffn = 384;
  r.model.head_dim = 32, r.model.vocab = 512;
  r.mesh.zero = zero;
  return r;
}

// What is held between steps, apart from the packed copies of weights, which any step makes again.
int64_t state_bytes(const Recipe& recipe, Communicator& world) {
  Kernels kernels = cpu_kernels();
  kernels.packed_matmul_b_bytes = [](DType, int64_t, int64_t, bool) -> size_t { return 0; };
  TestRank rank(kernels);
  const SyntheticBatches batches = batches_of(recipe);
  Trainer trainer(rank.context, world, recipe, batches);
  trainer.step();
  trainer.step();
  return rank.allocator.stats().live_bytes;
}

int64_t state_bytes(const Recipe& recipe) {
  std::atomic<int64_t> most = 0;
  run_ranks(recipe.mesh.size(), [&](Communicator& world) {
    const int64_t mine = state_bytes(recipe, world);
    int64_t seen = most;
    while (mine > seen && !most.compare_exchange_weak(seen, mine)) {
    }
  });
  return most;
}

TEST(ZeroMemoryTest, ShardsWhatItsStageSays) {
  constexpr int kRanks = 8;
  const Recipe plain = larger_recipe(kRanks, Zero::none, Precision::fp32);
  const auto all = double(plain.model.num_params());
  const auto measured = [&](Zero zero) { return double(state_bytes(larger_recipe(kRanks, zero, Precision::fp32))); };
  const double none = measured(Zero::none), one = measured(Zero::optimizer), two = measured(Zero::gradients),
               three = measured(Zero::parameters);
  EXPECT_NEAR(none, kStateBytes * all, 0.03 * kStateBytes * all);
  // Stage 1 cuts the 8 bytes of optimizer state, stage 2 the 4 of gradients too, stage 3 everything.
  EXPECT_NEAR(one, (8 + 8.0 / kRanks) * all, 0.03 * one);
  EXPECT_NEAR(two, (4 + 12.0 / kRanks) * all, 0.03 * two);
  EXPECT_GE(none / three, 7.8);
  RecordProperty("none_over_zero3", std::to_string(none / three));
  fmt::print("bytes a parameter: {:.3f}, zero 1 {:.3f}, zero 2 {:.3f}, zero 3 {:.3f}; {:.2f} times less\n",
             none / all, one / all, two / all, three / all, none / three);
}

// What a step takes beyond the state, of a model whose layers have many weights and few activations.
int64_t bytes_beyond_state(Zero zero, int64_t layers) {
  Recipe r = larger_recipe(2, zero, Precision::fp32);
  r.model.layers = layers;
  r.model.vocab = 64;
  r.train.recompute.what = RecomputePolicy::What::block;
  const MemoryEstimate e = estimate_memory(r, 0);
  return e.peak_bytes - e.state_bytes;
}

TEST(ZeroMemoryTest, GradientsOnTheirWayAreOfFewLayers) {
  Recipe one = larger_recipe(2, Zero::none, Precision::fp32);
  one.model.layers = 1, one.model.vocab = 64;
  Recipe two = one;
  two.model.layers = 2;
  const int64_t layer = 4 * (two.model.num_params() - one.model.num_params());
  for (const Zero zero : {Zero::gradients, Zero::parameters})
    EXPECT_LT(bytes_beyond_state(zero, 24) - bytes_beyond_state(zero, 8), 2 * layer) << "zero " << int(zero);
}

struct ScheduleCase {
  ScheduleKind kind;
  int pp;
};
class ScheduleMemoryTest : public testing::TestWithParam<ScheduleCase> {};
constexpr ScheduleCase kSchedules[] = {{ScheduleKind::gpipe, 4},       {ScheduleKind::gpipe, 8},
                                       {ScheduleKind::one_f_one_b, 4}, {ScheduleKind::one_f_one_b, 8},
                                       {ScheduleKind::interleaved, 4}, {ScheduleKind::zb_h1, 4},
                                       {ScheduleKind::zbv, 4},         {ScheduleKind::interleaved, 8},
                                       {ScheduleKind::zb_h1, 8},       {ScheduleKind::zbv, 8}};
std::string schedule_name(const testing::TestParamInfo<ScheduleCase>& info) {
  std::string name(weft::name_of(info.param.kind));
  std::ranges::replace(name, '-', '_');
  return fmt::format("{}_pp{}", info.param.kind == ScheduleKind::one_f_one_b ? "one_f_one_b" : name, info.param.pp);
}
INSTANTIATE_TEST_SUITE_P(Schedules, ScheduleMemoryTest, testing::ValuesIn(kSchedules), schedule_name);

// What a block keeps from the end of its input half until its weight half, in fp32: the inputs of its linear layers
// and the gradients of their outputs.
double weight_half_bytes(const ModelConfig& m, int64_t tokens) {
  const int64_t queries = m.heads * m.head_dim, keys = m.kv_heads * m.head_dim;
  const int64_t qkv = m.hidden + queries + 2 * keys, out = queries + m.hidden;
  const int64_t gate_up = m.hidden + 2 * m.ffn, down = m.ffn + m.hidden;
  return double(tokens * (qkv + out + gate_up + down) * 4);
}

// The peak above the state is what one micro-batch needs while it runs, and what the others in flight hold. What one
// costs is taken from GPipe with one micro-batch more; all figures are the allocator's, over meta memory, which is
// what a run takes (steady_state_test).
TEST_P(ScheduleMemoryTest, HoldsWhatTheScheduleSays) {
  const ScheduleCase& c = GetParam();
  constexpr int kMicroBatches = 16, kRows = 4;
  const int virtual_stages = default_virtual_stages(c.kind);
  const auto recipe_with = [&](ScheduleKind kind, int micro_batches) {
    Recipe r = larger_recipe(1, Zero::none, Precision::fp32);
    r.model.layers = 48, r.model.vocab = 64;  // as many in each stage
    r.train.seq_len = r.model.context = 64;
    r.train.global_batch = kRows * micro_batches, r.train.micro_batch = kRows, r.train.accumulation = micro_batches;
    r.mesh.shape.pp = c.pp, r.mesh.schedule = kind;
    r.mesh.virtual_stages = kind == c.kind ? virtual_stages : 1;
    return r;
  };
  const auto above_state = [&](const Recipe& r, int rank) {
    const MemoryEstimate e = estimate_memory(r, rank);
    return double(e.peak_bytes - e.state_bytes);
  };
  const Recipe recipe = recipe_with(c.kind, kMicroBatches);
  const Schedule schedule = make_schedule(
      {.kind = c.kind, .num_ranks = c.pp, .virtual_stages = virtual_stages, .num_micro_batches = kMicroBatches});
  const double layers = double(recipe.model.layers) / schedule.num_stages();  // of a stage
  const double weight_half = layers * weight_half_bytes(recipe.model, kRows * recipe.train.seq_len);
  for (int rank = 1; rank + 1 < c.pp; ++rank) {
    const double one = above_state(recipe_with(ScheduleKind::gpipe, 1), rank);
    const double each = above_state(recipe_with(ScheduleKind::gpipe, 2), rank) - one;
    const double formula = one - each + peak_held(schedule.actions(rank), each / virtual_stages, weight_half);
    const double measured = above_state(recipe, rank);
    EXPECT_NEAR(measured, formula, 0.05 * formula) << "rank " << rank;
    fmt::print("{} pp={} rank {}: {:.0f} bytes above the state, the formula says {:.0f} ({:+.1f}%)\n",
               weft::name_of(c.kind), c.pp, rank, measured, formula, 100 * (measured / formula - 1));
  }
}

}  // namespace
}  // namespace weft
