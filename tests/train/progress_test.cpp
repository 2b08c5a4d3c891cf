// Progress: the line fits its terminal, is not redrawn too often, and becomes plain lines in a log.
#include "weft/train/progress.h"

#include <gtest/gtest.h>
#include <cmath>

namespace weft {
namespace {

const StepProgress kExample{.step = 120,
                            .num_steps = 2000,
                            .loss = 2.34512,
                            .lr = 9.8e-4,
                            .tokens_per_s = 123456,
                            .mfu = 0.4123,
                            .eta_s = 83};

TEST(FormatStep, ShowsWhatFits) {
  const struct {
    int width;
    const char* expected;
  } cases[] = {
      {200, "step 120/2000 | loss 2.3451 | lr 9.80e-04 | 123k tok/s | mfu 41.2% | eta 1m23s"},
      {78, "step 120/2000 | loss 2.3451 | 123k tok/s | mfu 41.2% | eta 1m23s"},
      {60, "step 120/2000 | loss 2.3451 | 123k tok/s | eta 1m23s"},
      {50, "step 120/2000 | loss 2.3451 | eta 1m23s"},
      {30, "step 120/2000 | loss 2.3451"},
      {20, "step 120/2000"},
      {8, "step 12"},
      {1, ""},
      {0, ""},
  };
  for (const auto& [width, expected] : cases) EXPECT_EQ(format_step(kExample, width), expected) << width;
}

TEST(FormatStep, IsNeverTooWide) {
  StepProgress progress = kExample;
  for (const double value : {0.0, 1e-30, 1e30, -1e9, double(NAN), double(INFINITY)}) {
    progress.loss = progress.lr = progress.tokens_per_s = progress.mfu = progress.eta_s = value;
    for (int width = 1; width < 200; ++width) EXPECT_LT(int(format_step(progress, width).size()), width);
  }
}

TEST(FormatStep, LeavesOutWhatIsNotKnown) {
  StepProgress progress = kExample;
  progress.mfu = progress.eta_s = NAN;
  EXPECT_EQ(format_step(progress, 200), "step 120/2000 | loss 2.3451 | lr 9.80e-04 | 123k tok/s | eta ?");
}

TEST(FormatBytesDone, DrawsABar) {
  EXPECT_EQ(format_bytes_done("tokenizing", 0, 2'000'000, 44), "tokenizing [--------------]   0% 0.0/2.0 MB");
  EXPECT_EQ(format_bytes_done("tokenizing", 1'000'000, 2'000'000, 44), "tokenizing [#######-------]  50% 1.0/2.0 MB");
  EXPECT_EQ(format_bytes_done("tokenizing", 2'000'000, 2'000'000, 44), "tokenizing [##############] 100% 2.0/2.0 MB");
  EXPECT_EQ(format_bytes_done("tokenizing", 1'999'999, 2'000'000, 30), "tokenizing  99% 2.0/2.0 MB");
  for (int width = 1; width < 200; ++width)
    for (const int64_t total : {0, 1, 1'000'000'000})
      EXPECT_LT(int(format_bytes_done("tokenizing", total / 3, total, width).size()), width);
}

TEST(Formats, AreShort) {
  const std::pair<double, const char*> durations[] = {{0, "0s"},     {59.4, "59s"},   {59.6, "1m00s"},
                                                      {83, "1m23s"}, {7500, "2h05m"}, {273600, "3d04h"},
                                                      {-1, "?"},     {NAN, "?"},      {INFINITY, "?"}};
  for (const auto& [seconds, expected] : durations) EXPECT_EQ(format_duration(seconds), expected);
  const std::pair<double, const char*> counts[] = {
      {0, "0"}, {950, "950"}, {999.6, "1.00k"}, {12345, "12.3k"}, {123456, "123k"}, {4.56e6, "4.56M"}, {NAN, "?"}};
  for (const auto& [count, expected] : counts) EXPECT_EQ(format_count(count), expected);
}

class ProgressLineTest : public testing::Test {
 protected:
  ProgressLine make(bool is_live) {
    return ProgressLine([this](std::string_view text) { out_ += text; }, [] { return 40; }, is_live, 10);
  }
  std::string take() { return std::exchange(out_, ""); }
  StepProgress step(int64_t i) { return {.step = i, .num_steps = 100, .loss = 1, .eta_s = 5}; }
  std::string out_;
};

TEST_F(ProgressLineTest, RewritesOneLineAtMostTenTimesASecond) {
  ProgressLine line = make(true);
  line.show(step(1), 0.0);
  EXPECT_EQ(take(), "\rstep 1/100 | loss 1.0000 | eta 5s\x1b[K");
  line.show(step(2), 0.05);
  EXPECT_EQ(take(), "");
  line.show(step(3), 0.11);
  EXPECT_EQ(take(), "\rstep 3/100 | loss 1.0000 | eta 5s\x1b[K");
  line.show(step(3), 0.5);
  EXPECT_EQ(take(), "");
  line.note("eval 2.5");
  EXPECT_EQ(take(), "\reval 2.5\x1b[K\nstep 3/100 | loss 1.0000 | eta 5s");
  line.show(step(100), 0.51);
  EXPECT_EQ(take(), "\rstep 100/100 | loss 1.0000 | eta 5s\x1b[K");
  line.finish();
  line.finish();
  EXPECT_EQ(take(), "\n");
  int drawn = 0;
  for (int i = 0; i < 1000; ++i) {
    line.show(step(i % 99), 1 + 0.001 * i);
    drawn += take().empty() ? 0 : 1;
  }
  EXPECT_LE(drawn, 10);
  EXPECT_GE(drawn, 9);
}

TEST_F(ProgressLineTest, WritesPlainLinesToALog) {
  ProgressLine line = make(false);
  for (int64_t i = 1; i <= 100; ++i) line.show(step(i), 0.001 * double(i));
  const std::string all = take();
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 10);
  EXPECT_EQ(all.find('\r'), all.npos);
  EXPECT_EQ(all.rfind("step 10/100 | loss 1.0000", 0), 0u) << all;
  line.note("eval 2.5");
  EXPECT_EQ(take(), "eval 2.5\n");
  for (int64_t done = 0; done <= 1000; ++done) line.show_bytes("tokenizing", done, 1000, 0);
  const std::string last = take();
  EXPECT_EQ(std::count(last.begin(), last.end(), '\n'), 1);
  EXPECT_NE(last.find("100%"), last.npos);
  line.finish();
  EXPECT_EQ(take(), "");
}

}  // namespace
}  // namespace weft
