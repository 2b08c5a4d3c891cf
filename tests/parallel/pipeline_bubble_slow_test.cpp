// The bubble of each schedule as the executor leaves it, beside the formula: stages sleep instead of computing, so
// that any number of ranks works at its own pace on whatever cores there are.
#include <chrono>
#include <thread>

#include "parallel/schedule_formulas.h"
#include "support/rank.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/parallel/pipeline/check_schedule.h"
#include "weft/parallel/pipeline/pipeline.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kUnit{12};  // of one stage: its forward, its input half, its weight half
constexpr int kMicroBatches = 8;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Takes a unit of time for each of its three parts, and notes how long they took.
struct SleepOp {
  static constexpr std::string_view kName = "sleep";
  double* busy;

  void work() const {
    const auto begin = Clock::now();
    std::this_thread::sleep_for(kUnit);
    *busy += seconds_since(begin);
  }
  Tensor forward(Context& context, const Tensor& x) {
    work();
    return x ? x : context.empty(DType::f32, {1});
  }
  Tensor backward(Context&, const Tensor& dy) {
    work();
    return dy;
  }
  void backward_weight(Context&, const Tensor&) { work(); }
};

class SleepingStage final : public Stage {
 public:
  SleepingStage(Context& context, double* busy) : context_(context), busy_(busy) {}
  Var forward(int, const Var& x) override { return apply(context_, SleepOp{busy_}, x); }

 private:
  Context& context_;
  double* busy_;
};

// The share of all ranks' time in one step in which they do not work.
double measure_bubble(const PipelineShape& shape) {
  const Schedule schedule = make_schedule(shape);
  std::vector<double> busy(size_t(shape.num_ranks)), step(busy.size());
  run_ranks(shape.num_ranks, [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    double& mine = busy[size_t(world.rank())];
    SleepingStage stage(rank.context, &mine);
    Pipeline pipeline(rank.context, world, schedule, std::vector<Stage*>(size_t(shape.virtual_stages), &stage),
                      {.dtype = DType::f32, .shape = {1}}, WeightGrads::now);
    const Tensor dy = rank.allocator.zeros(DType::f32, {1});
    world.barrier();
    const auto begin = Clock::now();
    pipeline.run(dy);
    world.barrier();
    step[size_t(world.rank())] = seconds_since(begin);
  });
  double worked = 0, took = 0;
  for (size_t r = 0; r < busy.size(); ++r) worked += busy[r], took += step[r];
  return 1 - worked / took;
}

struct BubbleCase {
  ScheduleKind kind;
  int ranks;
};
class PipelineBubbleTest : public testing::TestWithParam<BubbleCase> {};
constexpr BubbleCase kCases[] = {
    {ScheduleKind::gpipe, 2},       {ScheduleKind::gpipe, 4},       {ScheduleKind::one_f_one_b, 2},
    {ScheduleKind::one_f_one_b, 4}, {ScheduleKind::interleaved, 2}, {ScheduleKind::interleaved, 4},
    {ScheduleKind::zb_h1, 2},       {ScheduleKind::zb_h1, 4},       {ScheduleKind::zbv, 2},
    {ScheduleKind::zbv, 4},
};
std::string case_name(const testing::TestParamInfo<BubbleCase>& c) {
  std::string name(c.param.kind == ScheduleKind::one_f_one_b ? "one_f_one_b" : name_of(c.param.kind));
  std::ranges::replace(name, '-', '_');
  return fmt::format("{}_pp{}", name, c.param.ranks);
}
INSTANTIATE_TEST_SUITE_P(Schedules, PipelineBubbleTest, testing::ValuesIn(kCases), case_name);

// By hand on a quiet machine (--gtest_also_run_disabled_tests): every disturbance by another process makes a step
// longer, so the calmest of some steps is the executor's own. pipeline_time_test.cpp says the same without a real
// clock.
TEST_P(PipelineBubbleTest, DISABLED_IsWhatTheFormulaSaysWithinFivePercent) {
  const auto [kind, ranks] = GetParam();
  const PipelineShape shape{.kind = kind,
                            .num_ranks = ranks,
                            .virtual_stages = default_virtual_stages(kind),
                            .num_micro_batches = kMicroBatches};
  const double formula = bubble_formula(shape, {}).value();
  constexpr int kMostTries = 8;
  double least = 1;
  for (int i = 0; i < kMostTries && least > 1.05 * formula; ++i) least = std::min(least, measure_bubble(shape));
  fmt::print("{} pp={}: bubble {:.2f}%, the formula says {:.2f}%\n", name_of(kind), ranks, 100 * least,
             100 * formula);
  EXPECT_NEAR(least, formula, 0.05 * formula);
}

}  // namespace
}  // namespace weft
