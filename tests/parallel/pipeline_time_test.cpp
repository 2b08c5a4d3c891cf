// The bubble of each schedule by a clock that only work and messages move: the executor, its messages and their order
// as they are, and no chance in it.
#include "parallel/schedule_formulas.h"
#include "support/rank.h"
#include "weft/comm/threads/run_ranks.h"
#include "weft/parallel/pipeline/check_schedule.h"
#include "weft/parallel/pipeline/pipeline.h"

namespace weft {
namespace {

// What crosses a boundary between stages is the time at which its sender was done with it. Each part of a stage's
// work begins when its rank is free and its message there, and takes one unit.
struct ClockOp {
  static constexpr std::string_view kName = "clock";
  double* now;    // of the rank
  bool is_whole;  // the weight half follows at once, before the message to the stage before

  Tensor work(Context& context, const Tensor& message, int units) const {
    if (message) *now = std::max(*now, message.data<double>()[0]);
    *now += units;
    Tensor done = context.empty(DType::f64, {1});
    done.data<double>()[0] = *now;
    return done;
  }
  Tensor forward(Context& context, const Tensor& x) { return work(context, x, 1); }
  Tensor backward(Context& context, const Tensor& dy) { return work(context, dy, is_whole ? 2 : 1); }
  void backward_weight(Context&, const Tensor&) { *now += is_whole ? 0 : 1; }
};

class ClockStage final : public Stage {
 public:
  ClockStage(Context& context, double* now) : context_(context), now_(now) {}
  Var forward(int, const Var& x) override {
    return apply(context_, ClockOp{now_, context_.tape->when() == WeightGrads::now}, x);
  }

 private:
  Context& context_;
  double* now_;
};

class PipelineTimeTest : public testing::TestWithParam<std::tuple<ScheduleKind, int>> {};

TEST_P(PipelineTimeTest, IsWhatTheFormulaSays) {
  const auto [kind, ranks] = GetParam();
  const PipelineShape shape{
      .kind = kind, .num_ranks = ranks, .virtual_stages = default_virtual_stages(kind), .num_micro_batches = 16};
  const Schedule schedule = make_schedule(shape);
  std::vector<double> ends(size_t(ranks), 0);
  run_ranks(ranks, [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    double& now = ends[size_t(world.rank())];
    ClockStage stage(rank.context, &now);
    Pipeline pipeline(rank.context, world, schedule, std::vector<Stage*>(size_t(shape.virtual_stages), &stage),
                      {.dtype = DType::f64, .shape = {1}}, WeightGrads::now);
    const Tensor dy = rank.allocator.zeros(DType::f64, {1});
    pipeline.run(dy);
  });
  const double busy = 3.0 * shape.virtual_stages * shape.num_micro_batches;
  const double makespan = *std::ranges::max_element(ends);
  EXPECT_NEAR(1 - busy / makespan, bubble_formula(shape, {}).value(), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Schedules, PipelineTimeTest,
                         testing::Combine(testing::Values(ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                                          ScheduleKind::interleaved, ScheduleKind::zb_h1,
                                                          ScheduleKind::zbv),
                                          testing::Values(2, 4, 8)),
                         [](const auto& test) {
                           std::string name(name_of(std::get<0>(test.param)));
                           std::ranges::replace(name, '-', '_');
                           return fmt::format("s_{}_pp{}", name, std::get<1>(test.param));
                         });

}  // namespace
}  // namespace weft
