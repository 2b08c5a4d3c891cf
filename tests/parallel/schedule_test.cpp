// Every kind of schedule over ranks, micro-batches and virtual stages: complete, ending, within its memory, as fast
// as its authors say.
#include "weft/parallel/pipeline/schedule.h"

#include "parallel/schedule_formulas.h"
#include "weft/base/error.h"
#include "weft/parallel/pipeline/check_schedule.h"

namespace weft {
namespace {

using enum ScheduleKind;

std::vector<PipelineShape> all_shapes() {
  std::vector<PipelineShape> shapes;
  for (const std::string& name : schedule_names()) {
    const ScheduleKind kind = *schedule_kind(name);
    const int stages = default_virtual_stages(kind);
    for (int virtual_stages = stages; virtual_stages <= (kind == interleaved ? 3 : stages); ++virtual_stages)
      for (const int ranks : {1, 2, 3, 4, 8})
        for (const int count : {1, 2, 3, 4, 7, 8, 16}) shapes.push_back({kind, ranks, virtual_stages, count});
  }
  return shapes;
}

std::string text_of(const PipelineShape& s) {
  std::string name(name_of(s.kind));
  std::ranges::replace(name, '-', '_');
  return fmt::format("{}_{}_ranks_{}_stages_{}_micro_batches", name, s.num_ranks, s.virtual_stages,
                     s.num_micro_batches);
}

class ScheduleTest : public testing::TestWithParam<ScheduleKind> {
 protected:
  void for_each_shape(const std::function<void(const PipelineShape&)>& body) {
    for (const PipelineShape& shape : all_shapes()) {
      if (shape.kind != GetParam()) continue;
      SCOPED_TRACE(text_of(shape));
      body(shape);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, ScheduleTest,
                         testing::Values(gpipe, one_f_one_b, interleaved, zb_h1, zbv, dualpipe_v),
                         [](const auto& test) {
                           std::string name(name_of(test.param));
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(ScheduleTest, IsCompleteAndEndsWithBufferedSends) {
  for_each_shape([](const PipelineShape& shape) {
    for (const ActionCosts& costs : {ActionCosts{}, ActionCosts{1, 1.5, 0.7, 0.3}})
      for (const std::string& problem : check_schedule(make_schedule(shape), costs).problems)
        ADD_FAILURE() << problem;
  });
}

// Who sends without a buffer must not be sent to at the same time: only GPipe keeps the two directions apart.
TEST_P(ScheduleTest, OnlyGpipeSurvivesRendezvous) {
  for_each_shape([](const PipelineShape& shape) {
    const std::string deadlock = check_schedule(make_schedule(shape)).rendezvous_deadlock;
    const bool survives = shape.kind == gpipe || shape.num_ranks == 1 || shape.num_micro_batches == 1;
    EXPECT_EQ(deadlock.empty(), survives) << deadlock;
  });
}

// In a V both directions of a pair carry activations and gradients.
TEST_P(ScheduleTest, OnlyAVNeedsTagsBetweenTwoRanks) {
  for_each_shape([](const PipelineShape& shape) {
    if (shape.kind == zbv || shape.kind == dualpipe_v) return;
    EXPECT_EQ(check_schedule(make_schedule(shape)).reordered, "");
  });
}

TEST_P(ScheduleTest, HoldsNoMoreThanItMay) {
  for_each_shape([](const PipelineShape& shape) {
    const int p = shape.num_ranks, m = shape.num_micro_batches, v = shape.virtual_stages;
    const ScheduleReport report = check_schedule(make_schedule(shape));
    for (int r = 0; r < p; ++r) {
      const RankReport& rank = report.ranks[size_t(r)];
      if (p == 1) {
        EXPECT_EQ(rank.peak_in_flight, v);
      } else if (shape.kind == gpipe) {
        EXPECT_EQ(rank.peak_in_flight, m);
      } else if (shape.kind == one_f_one_b) {
        EXPECT_EQ(rank.peak_in_flight, std::min(m, p - r));
      } else if (shape.kind == interleaved) {  // the warm-up, and one more in the steady state
        EXPECT_LE(rank.peak_in_flight, std::min(m * v, 2 * (p - 1 - r) + (v - 1) * p + 1));
      } else if (shape.kind == zb_h1) {  // Qi et al., 2023, table 1: p, as on the first rank of 1F1B
        EXPECT_EQ(rank.peak_before_backward, std::min(m, p - r));
        EXPECT_EQ(rank.peak_in_flight, std::min(m, p));
      } else {  // of half a rank's layers: p of a rank's, and half a one more for DualPipe
        EXPECT_LE(rank.peak_in_flight, std::min(2 * m, 2 * p + (shape.kind == dualpipe_v)));
      }
    }
  });
}

TEST_P(ScheduleTest, TakesAsLongAsTheFormulaSays) {
  for_each_shape([](const PipelineShape& shape) {
    for (const ActionCosts& costs : {ActionCosts{}, ActionCosts{1, 1.5, 0.7}, ActionCosts{2, 2, 2}}) {
      const ScheduleReport report = check_schedule(make_schedule(shape), costs);
      const double work = shape.num_micro_batches * shape.virtual_stages * costs.all();
      for (const RankReport& rank : report.ranks) EXPECT_NEAR(rank.busy, work, 1e-9);
      if (const auto idle = idle_formula(shape, costs)) {
        EXPECT_NEAR(report.makespan, work + *idle, 1e-9);
        EXPECT_NEAR(report.bubble, *bubble_formula(shape, costs), 1e-9);
      }
    }
  });
}

TEST(BubbleTest, FormulasGiveTheFiguresOfThePapers) {
  EXPECT_NEAR(*bubble_formula({gpipe, 4, 1, 8}, {}), 3.0 / 11, 1e-12);
  EXPECT_NEAR(*bubble_formula({one_f_one_b, 4, 1, 8}, {}), 3.0 / 11, 1e-12);
  EXPECT_NEAR(*bubble_formula({interleaved, 4, 2, 8}, {}), 3.0 / 19, 1e-12);
  EXPECT_NEAR(*bubble_formula({zb_h1, 4, 1, 8}, {}), 3.0 / 27, 1e-12);
  EXPECT_FALSE(bubble_formula({interleaved, 4, 2, 7}, {}));
}

TEST(BubbleTest, ZbvNeverIdlesOnceItHasBegunWhereThePartsCostTheSame) {
  for (const int ranks : {2, 3, 4, 8})
    for (const int count : {2 * ranks - 1, 2 * ranks, 4 * ranks + 1})
      EXPECT_EQ(check_schedule(make_schedule({zbv, ranks, 2, count})).inner_idle, 0) << ranks << " ranks " << count;
}

// DeepSeek's (PP / 2 - 1)(F&B + B - 3W) for PP = 2 ranks, with F&B the time of both one after the other.
TEST(BubbleTest, DualPipeIdlesNoMoreThanItsAuthorsSay) {
  for (const int ranks : {2, 3, 4, 8})
    for (const ActionCosts& costs : {ActionCosts{}, ActionCosts{1, 1.5, 0.7}}) {
      const PipelineShape shape{dualpipe_v, ranks, 2, 2 * ranks};
      const double backward = costs.backward_input + costs.backward_weight;
      const double idle = check_schedule(make_schedule(shape), costs).makespan - 4 * ranks * costs.all();
      EXPECT_LE(idle, (ranks - 1) * (costs.forward + 2 * backward - 3 * costs.backward_weight) + 1e-9);
    }
}

TEST(BubbleTest, IsSmallerTheNewerTheSchedule) {
  const auto bubble = [](ScheduleKind kind) {
    return check_schedule(make_schedule({kind, 4, default_virtual_stages(kind), 16})).bubble;
  };
  EXPECT_GT(bubble(one_f_one_b), bubble(interleaved));
  EXPECT_GT(bubble(interleaved), bubble(zb_h1));
  EXPECT_GT(bubble(zb_h1), bubble(zbv));
}

TEST(PipelineShapeTest, PlacesStages) {
  const auto ranks = [](const PipelineShape& shape) {
    std::vector<int> all;
    for (int s = 0; s < shape.num_stages(); ++s) all.push_back(shape.rank_of(s));
    return all;
  };
  EXPECT_EQ(ranks({one_f_one_b, 3, 1, 1}), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(ranks({interleaved, 3, 2, 1}), (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(ranks({zbv, 3, 2, 1}), (std::vector<int>{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(ranks({dualpipe_v, 2, 2, 1}), (std::vector<int>{0, 1, 1, 0}));
}

TEST(ScheduleKindTest, HasNames) {
  EXPECT_EQ(schedule_names(),
            (std::vector<std::string>{"gpipe", "1f1b", "interleaved", "zb-h1", "zbv", "dualpipe-v"}));
  for (const std::string& name : schedule_names()) EXPECT_EQ(name_of(*schedule_kind(name)), name);
  EXPECT_FALSE(schedule_kind("1f2b"));
}

TEST(MakeScheduleTest, OneRankRunsEachMicroBatchForwardAndBackward) {
  const std::vector<Action> expected = {{ActionKind::forward, 0, 0},  {ActionKind::forward, 1, 0},
                                        {ActionKind::backward, 1, 0}, {ActionKind::backward, 0, 0},
                                        {ActionKind::forward, 0, 1},  {ActionKind::forward, 1, 1},
                                        {ActionKind::backward, 1, 1}, {ActionKind::backward, 0, 1}};
  for (const ScheduleKind kind : {interleaved, zbv, dualpipe_v}) {
    const Schedule schedule = make_schedule({kind, 1, 2, 2});
    EXPECT_TRUE(std::ranges::equal(schedule.actions(0), expected));
  }
}

struct Impossible {
  std::string name;
  PipelineShape shape;
  std::string text;
};

class ImpossibleTest : public testing::TestWithParam<Impossible> {};
INSTANTIATE_TEST_SUITE_P(
    Shapes, ImpossibleTest,
    testing::Values(
        Impossible{"ranks", {gpipe, 0, 1, 1}, "mesh.pp: 0 ranks; write 1 or more"},
        Impossible{"micro_batches", {gpipe, 2, 1, 0}, "train.accumulation: 0 micro-batches; write 1 or more"},
        Impossible{"too_few", {interleaved, 2, 1, 4}, "mesh.virtual_stages: 1; \"interleaved\" needs 2 or more"},
        Impossible{"one_rank", {zbv, 1, 1, 4}, "mesh.schedule = \"zbv\" needs mesh.pp of at least 2"},
        Impossible{"one_rank_interleaved", {interleaved, 1, 1, 4}, "\"interleaved\" needs mesh.pp of at least 2"},
        Impossible{"too_many",
                   {one_f_one_b, 2, 2, 4},
                   "mesh.virtual_stages: 2; \"1f1b\" has exactly 1 on each rank; write 1, or mesh.schedule = "
                   "\"interleaved\""},
        Impossible{"v", {zbv, 2, 1, 4}, "mesh.virtual_stages: 1; \"zbv\" has exactly 2 on each rank; write 2, or "}),
    [](const auto& test) { return test.param.name; });

TEST_P(ImpossibleTest, NamesTheKeyAndWhatToWrite) {
  try {
    make_schedule(GetParam().shape);
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().text), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft
