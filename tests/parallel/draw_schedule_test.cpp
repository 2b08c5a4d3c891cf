// Pictures of small schedules, and how they fit a narrow terminal.
#include "weft/parallel/pipeline/draw_schedule.h"

#include <sstream>

#include "weft/base/error.h"

namespace weft {
namespace {

TEST(DrawScheduleTest, ShowsRanksBelowEachOther) {
  EXPECT_EQ(draw(make_schedule({ScheduleKind::one_f_one_b, 2, 1, 3})),
            "rank 0 F0F1....B0--F2B1--..B2--\n"
            "rank 1 ..F0B0--F1B1--F2B2--....\n"
            "makespan 12, bubble 25.0 %\n"
            "most stage activations in flight: 2 1\n");
}

TEST(DrawScheduleTest, TellsHalvesAndStagesApart) {
  EXPECT_EQ(draw(make_schedule({ScheduleKind::zbv, 2, 2, 3})),
            "rank 0 F0F1F2f0b0w0f1b1w1B0W0f2b2w2B1W1B2W2..\n"
            "rank 1 ..F0f0F1f1b0w0F2B0W0f2b1w1B1b2B2W1w2W2\n"
            "makespan 19, bubble 5.3 %\n"
            "most stage activations in flight: 4 4\n");
  const std::string three = draw(make_schedule({ScheduleKind::interleaved, 2, 3, 2}));
  EXPECT_TRUE(three.starts_with("rank 0 F0aF1aF0bF1bF0cF1c")) << three;
}

TEST(DrawScheduleTest, FitsItsColumns) {
  const Schedule schedule = make_schedule({ScheduleKind::one_f_one_b, 8, 1, 64});
  for (const int columns : {40, 100, 200, 230}) {
    std::istringstream lines(draw(schedule, {}, columns));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(int(line.size()), std::max(columns, 60)) << line;
  }
  const std::string narrow = draw(schedule, {}, 100), wide = draw(schedule, {}, 2000);
  EXPECT_NE(narrow.find("the first 93 of 213 columns\n"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("micro-batch numbers stand only where they fit"), std::string::npos);
  EXPECT_EQ(wide.find("columns"), std::string::npos);
  EXPECT_EQ(wide.find("numbers"), std::string::npos);
}

TEST(DrawScheduleTest, RefusesABrokenSchedule) { EXPECT_THROW(draw({{}, {{}}}), Error); }

}  // namespace
}  // namespace weft
