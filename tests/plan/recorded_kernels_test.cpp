// Recorded kernels: an event to each call, and products of experts that are alike in one.
#include "weft/plan/recorded_kernels.h"

#include "kernels/workbench.h"

namespace weft::plan {
namespace {

class RecordedKernelsTest : public testing::Test {
 protected:
  // Of experts with so many rows each.
  std::vector<Event> events_of(const std::vector<int64_t>& rows, const Kernels* timed = nullptr, int calls = 1) {
    std::vector<Event> events;
    RecordedStream stream(bench_.team, bench_.allocator, events, timed);
    stream.set_recording(true);
    std::vector<int64_t> starts{0};
    for (const int64_t n : rows) starts.push_back(starts.back() + n);
    const auto f32 = [&](Shape shape) { return bench_.random(DType::f32, shape, "x"); };
    const GroupedMatmulArgs up{.y = f32({starts.back(), 6}),
                               .a = f32({starts.back(), 4}),
                               .b = f32({int64_t(rows.size()), 6, 4}),
                               .transpose_b = true,
                               .starts = starts};
    recorded_kernels().grouped_matmuls(stream, std::array{up, up});
    if (calls > 1) recorded_kernels().grouped_matmuls(stream, std::array{up, up});
    recorded_kernels().matmul(stream, {.y = up.y, .a = up.a, .b = f32({6, 4}), .transpose_b = true});
    return events;
  }
  Workbench bench_;
};

TEST_F(RecordedKernelsTest, ExpertsWithAsManyRowsAreOneEvent) {
  const std::vector<Event> events = events_of({3, 3, 0, 3, 5});
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].count, 6);  // two products of each
  EXPECT_EQ(events[0].m, 3);
  EXPECT_EQ(events[0].flops, 6 * 2.0 * 3 * 6 * 4);
  EXPECT_EQ(events[1].count, 2);
  EXPECT_EQ(events[1].m, 5);
  EXPECT_EQ(events[2].count, 1) << "a product of its own, whatever it is like";
  EXPECT_EQ(events[0].bytes, 3 * events_of({3})[0].bytes);
}

TEST_F(RecordedKernelsTest, TwoCallsAreTwoEvents) {
  const std::vector<Event> events = events_of({3, 3}, nullptr, 2);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].count, 4);
  EXPECT_EQ(events[1].count, 4);
}

TEST_F(RecordedKernelsTest, TimedOnesAreEventsOfTheirOwn) {
  const std::vector<Event> events = events_of({3, 3}, &reference_kernels());
  ASSERT_EQ(events.size(), 5u);
  for (const Event& e : events) {
    EXPECT_EQ(e.count, 1);
    EXPECT_GT(e.seconds, 0);
  }
}

}  // namespace
}  // namespace weft::plan
