// Schedules with a mistake: each must be found, with ranks and actions named.
#include "weft/parallel/pipeline/check_schedule.h"

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr ActionKind F = ActionKind::forward, B = ActionKind::backward, I = ActionKind::backward_input,
                     W = ActionKind::backward_weight;

using Lists = std::vector<std::vector<Action>>;

struct Mistake {
  std::string name;
  Lists actions;
  std::vector<std::string> problems;
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

const std::vector<Action> kGood0 = {{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}};
const std::vector<Action> kGood1 = {{F, 1, 0}, {I, 1, 0}, {W, 1, 0}, {F, 1, 1}, {B, 1, 1}};

class MistakeTest : public testing::TestWithParam<Mistake> {};
INSTANTIATE_TEST_SUITE_P(
    Lists, MistakeTest,
    testing::Values(
        Mistake{"None", {kGood0, kGood1}, {}},
        Mistake{"Missing",
                {kGood0, {{F, 1, 0}, {I, 1, 0}, {F, 1, 1}, {B, 1, 1}}},
                {"rank 1: backward_weight stage 1 micro-batch 0 is missing"}},
        Mistake{"Twice",
                {kGood0, {{F, 1, 0}, {B, 1, 0}, {W, 1, 0}, {F, 1, 1}, {B, 1, 1}}},
                {"rank 1: backward_weight stage 1 micro-batch 0 repeats what an earlier action has done"}},
        Mistake{"WrongRank", {kGood1, kGood0}, {"rank 0: forward stage 1 micro-batch 0 belongs to rank 1"}},
        Mistake{"NoSuchMicroBatch",
                {{{F, 0, 2}}, {}},
                {"rank 0: forward stage 0 micro-batch 2 does not exist; there are 2 stages and 2 micro-batches"}},
        Mistake{"Swapped",
                {kGood0, {{I, 1, 0}, {F, 1, 0}, {W, 1, 0}, {F, 1, 1}, {B, 1, 1}}},
                {"rank 1: backward_input stage 1 micro-batch 0 comes before forward stage 1 micro-batch 0"}},
        Mistake{"WeightFirst",
                {kGood0, {{F, 1, 0}, {W, 1, 0}, {I, 1, 0}, {F, 1, 1}, {B, 1, 1}}},
                {"rank 1: backward_weight stage 1 micro-batch 0 comes before backward_input stage 1 micro-batch 0"}},
        Mistake{
            "Deadlock",
            {{{F, 0, 0}, {B, 0, 0}, {F, 0, 1}, {B, 0, 1}}, {{F, 1, 0}, {F, 1, 1}, {B, 1, 0}, {B, 1, 1}}},
            {"deadlock: rank 0 waits before backward stage 0 micro-batch 0 for the gradient for stage 0 micro-batch "
             "0 from rank 1; rank 1 waits before forward stage 1 micro-batch 1 for the activation for stage 1 "
             "micro-batch 1 from rank 0"}},
        Mistake{
            "Reordered",
            {kGood0, {{F, 1, 1}, {F, 1, 0}, {B, 1, 0}, {B, 1, 1}}},
            {"rank 0 sends the activation for stage 1 micro-batch 0 when rank 1 waits for the activation for stage "
             "1 micro-batch 1"}}),
    [](const auto& test) { return test.param.name; });

TEST_P(MistakeTest, IsFoundAndNamed) {
  const Schedule schedule({ScheduleKind::one_f_one_b, 2, 1, 2}, GetParam().actions);
  const ScheduleReport report = check_schedule(schedule);
  if (GetParam().problems.empty()) EXPECT_TRUE(report.is_sound());
  for (const std::string& expected : GetParam().problems)
    EXPECT_TRUE(std::ranges::find(report.problems, expected) != report.problems.end())
        << expected << "\nis not in\n"
        << fmt::format("{}", fmt::join(report.problems, "\n"));
}

// Any two neighbours of one rank's list swapped: a sound schedule stays one or the report says what is wrong, and
// whatever it calls sound comes to its end.
TEST(SwapTest, IsNeverMissed) {
  for (const ScheduleKind kind : {ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zbv}) {
    const Schedule good = make_schedule({kind, 3, default_virtual_stages(kind), 4});
    int found = 0;
    for (int rank = 0; rank < 3; ++rank)
      for (size_t i = 1; i < good.actions(rank).size(); ++i) {
        Lists lists;
        for (int r = 0; r < 3; ++r) lists.emplace_back(good.actions(r).begin(), good.actions(r).end());
        std::swap(lists[size_t(rank)][i - 1], lists[size_t(rank)][i]);
        const Schedule swapped(good.shape(), lists);
        const ScheduleReport report = check_schedule(swapped);
        if (report.is_sound()) {
          EXPECT_NO_THROW(simulate(swapped, {}));
        } else {
          EXPECT_NE(report.problems.front().find(fmt::format("rank {}", rank)), std::string::npos);
          ++found;
        }
      }
    EXPECT_GE(found, 8);
  }
}

TEST(RendezvousTest, NamesWhoWaitsForWhom) {
  const ScheduleReport report = check_schedule(make_schedule({ScheduleKind::one_f_one_b, 2, 1, 2}));
  EXPECT_EQ(
      report.rendezvous_deadlock,
      "rank 0 waits after forward stage 0 micro-batch 1 for rank 1 to take the activation for stage 1 micro-batch "
      "1; rank 1 waits after backward stage 1 micro-batch 0 for rank 0 to take the gradient for stage 0 "
      "micro-batch 0");
}

TEST(SimulationTest, CountsMessages) {
  const Schedule schedule = make_schedule({ScheduleKind::gpipe, 2, 1, 1});
  EXPECT_EQ(check_schedule(schedule, {1, 2, 3, 0.5}).makespan, 13);  // 1 + 0.5 + 1 + 5 + 0.5 + 5
  const auto ranks = simulate(schedule, {1, 2, 3, 0.5});
  EXPECT_EQ(ranks[1][0].begin, 1.5);
  EXPECT_EQ(ranks[0][1].end, 13);
}

}  // namespace
}  // namespace weft
