// Every published run of the shared table, by source; skipped where the table is not there.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/test_data.h"
#include "weft/base/file.h"
#include "weft/plan/published_choice.h"

namespace weft::plan {
namespace {

TEST(PublishedRunsTest, ArePredicted) {
  const std::string path = test_data("planner/validation_runs.csv");
  if (path.empty()) GTEST_SKIP() << no_test_data("planner/validation_runs.csv");
  const Validation v = validate(read_csv(read_file(path, 1 << 26), path));
  for (const std::string& source : v.sources()) {
    const ErrorSummary s = summarise(v.runs, source);
    fmt::print("{:<12} {:>4} runs: median {:.1f}%, 90th percentile {:.1f}%\n", source, s.count, 100 * s.median,
               100 * s.p90);
  }
  const ErrorSummary all = summarise(v.runs);
  fmt::print("all          {:>4} runs: median {:.1f}%, 90th percentile {:.1f}%; {} left out\n", all.count,
             100 * all.median, 100 * all.p90, v.left_out.size());
  EXPECT_GT(all.count, 550);
  EXPECT_LE(all.median, 0.08);
  EXPECT_LE(all.p90, 0.20);
  const std::vector<PublishedChoice> choices = published_choices(v.runs);
  const auto among_two = std::ranges::count_if(choices, [](const PublishedChoice& c) { return c.place <= 2; });
  fmt::print("the first choice is among the two fastest layouts of {} of {} models\n", among_two, choices.size());
  EXPECT_GE(choices.size(), 25u);
  EXPECT_GE(double(among_two), 0.9 * double(choices.size()));
}

}  // namespace
}  // namespace weft::plan
