// The timer of a device: marks are in the order of the queue and in the host's time, and can be made again.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cuda/emulation.h"
#include "weft/base/error.h"
#include "weft/tensor/cuda/cuda_device.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

TEST(CudaTimerTest, TellsWhenTheDeviceCameToItsMarks) {
  const EmulatorSetting at_once("WEFT_EMULATED_AT_ONCE", "1");
  constexpr int64_t kNap = 3'000'000, kSlack = 100'000'000;  // a machine with other work to do is late, never early
  const auto queue = make_cuda_queue();
  const auto timer = make_cuda_timer(*queue);
  for (const int num_marks : {3, 7, 2}) {
    timer->start();
    const int64_t begin = now_ns();
    for (int64_t i = 0; i < num_marks; ++i) {
      EXPECT_EQ(timer->mark(), i);
      std::this_thread::sleep_for(std::chrono::nanoseconds(kNap));
    }
    const int64_t end = now_ns();
    const std::vector<int64_t> times = timer->stop();
    ASSERT_EQ(int(times.size()), num_marks);
    EXPECT_NEAR(double(times.front()), double(begin), double(kSlack));
    EXPECT_LT(times.back(), end + kSlack);
    for (size_t i = 1; i < times.size(); ++i) EXPECT_GT(times[i] - times[i - 1], kNap - 10'000) << i;
  }
}

TEST(CudaTimerTest, ForgetsMarks) {
  const auto queue = make_cuda_queue();
  const auto timer = make_cuda_timer(*queue);
  timer->start();
  for (int i = 0; i < 3; ++i) timer->mark();
  timer->start();
  EXPECT_EQ(timer->mark(), 0);
  EXPECT_EQ(timer->stop().size(), 1u);
  EXPECT_TRUE(timer->stop().empty());
}

}  // namespace
}  // namespace weft
