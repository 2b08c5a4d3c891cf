// Allocator: blocks are reused, peaks are counted, limits hold, threads may share it.
#include "weft/tensor/allocator.h"

#include <thread>

#include "weft/tensor/stream.h"

namespace weft {
namespace {

TEST(AllocatorTest, BlocksAreAlignedAndLargeEnough) {
  Allocator allocator;
  for (const size_t bytes : {0, 1, 255, 256, 257, 288, 300, 1000, 4097, 1 << 20, (2 << 20) - 1, 2 << 20, 5 << 20}) {
    const BufferRef block = allocator.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block->data) % 64, 0u) << bytes;
    EXPECT_GE(block->bytes, bytes);
    // An eighth of the power of two below, less for large ones, or the 256 bytes of the smallest blocks.
    const double most = bytes < (64 << 10) ? 1.125 : 1 + 1.0 / 128;
    EXPECT_LE(double(block->bytes), std::max(256.0, most * double(bytes))) << bytes;
    std::memset(block->data, 1, block->bytes);  // sanitizers see a block that is too small
  }
}

TEST(AllocatorTest, SteadyStateAsksTheSystemForNothing) {
  Allocator allocator;
  const auto step = [&] {
    const Tensor a = allocator.empty(DType::f32, {100, 100});
    const Tensor b = allocator.empty(DType::bf16, {100, 100});
    Tensor c = allocator.empty(DType::f32, {100, 100});
    c = {};
    const Tensor d = allocator.empty(DType::f32, {99, 100});  // of the same size class as a and c
  };
  step();
  const AllocatorStats warm = allocator.stats();
  EXPECT_EQ(warm.system_calls, 3);
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(allocator.stats().system_calls, warm.system_calls);
  EXPECT_EQ(allocator.stats().reserved_bytes, warm.reserved_bytes);
  EXPECT_EQ(allocator.stats().peak_bytes, warm.peak_bytes);
  EXPECT_EQ(allocator.stats().live_bytes, 0);
}

TEST(AllocatorTest, PeakIsTheMostLiveAtOnce) {
  Allocator allocator;
  {
    const BufferRef a = allocator.allocate(1024);
    { const BufferRef b = allocator.allocate(2048); }
    const BufferRef c = allocator.allocate(512);
    EXPECT_EQ(allocator.stats().live_bytes, 1024 + 512);
    EXPECT_EQ(allocator.stats().peak_bytes, 1024 + 2048);
    allocator.reset_peak();
    EXPECT_EQ(allocator.stats().peak_bytes, 1024 + 512);
  }
  EXPECT_EQ(allocator.stats().live_bytes, 0);
  EXPECT_EQ(allocator.stats().peak_bytes, 1024 + 512);
}

TEST(AllocatorTest, TheLimitIsNamed) {
  Allocator allocator(Device::cpu, 4096);
  const BufferRef a = allocator.allocate(3072);
  try {
    allocator.allocate(2048);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const char* part : {"2048 bytes were asked for", "3072 are in use", "limit is 4096", "micro_batch"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_EQ(allocator.stats().live_bytes, 3072);
  EXPECT_NO_THROW(allocator.allocate(1024));
}

// Blocks kept for other sizes make room before the limit is hit, and the limit holds for live and kept together.
TEST(AllocatorTest, TheLimitHoldsForCachedBlocks) {
  Allocator allocator(Device::cpu, 4096);
  { const BufferRef a = allocator.allocate(3072); }
  EXPECT_EQ(allocator.stats().reserved_bytes, 3072);
  const BufferRef b = allocator.allocate(2048);
  EXPECT_EQ(allocator.stats().reserved_bytes, 2048);
  EXPECT_THROW(allocator.allocate(3072), Error);
  EXPECT_LE(allocator.stats().reserved_bytes, 4096);
}

#ifdef WEFT_SANITIZED
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

TEST(AllocatorTest, TheSystemMayRefuse) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers stop the program instead of refusing";
  Allocator allocator;
  const BufferRef a = allocator.allocate(1024);
  try {
    allocator.allocate(size_t(1) << 60);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what()).find("1024 are in use"), std::string_view::npos) << error.what();
  }
  EXPECT_EQ(allocator.stats().live_bytes, 1024);
  EXPECT_EQ(allocator.stats().reserved_bytes, 1024);
}

TEST(AllocatorTest, TrimGivesCachedBlocksBack) {
  Allocator allocator;
  const Tensor kept = allocator.zeros(DType::f32, {256});
  { const Tensor a = allocator.empty(DType::f32, {1 << 20}), b = allocator.empty(DType::f32, {256}); }
  EXPECT_EQ(allocator.stats().reserved_bytes, 1024 + (4 << 20) + 1024);
  allocator.trim();
  EXPECT_EQ(allocator.stats().reserved_bytes, 1024);
  EXPECT_EQ(kept.data<float>()[255], 0);
  const Tensor again = allocator.zeros(DType::f32, {1 << 20});
  EXPECT_EQ(again.data<float>()[(1 << 20) - 1], 0);
}

TEST(AllocatorTest, MetaTensorsAreCountedButTakeNoMemory) {
  Allocator allocator(Device::meta);
  const Tensor x = allocator.zeros(DType::bf16, {1 << 20, 1 << 20});
  EXPECT_EQ(x.device(), Device::meta);
  EXPECT_EQ(x.raw(), nullptr);
  EXPECT_EQ(allocator.stats().live_bytes, int64_t(1) << 41);
}

// The last reference of a tensor may be dropped by any thread.
TEST(AllocatorTest, ThreadsShareIt) {
  constexpr int kThreads = 4, kRounds = 300;
  Allocator allocator;
  {
    const Tensor shared = allocator.zeros(DType::f32, {64});
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < kRounds; ++i) {
          const Tensor view = shared.slice_flat(t, {1});
          const Tensor own = allocator.empty(DType::i32, {100 + i % 5 * 100});
          own.data<int32_t>()[0] = t;
          const Tensor copy = own;
          ASSERT_EQ(copy.data<int32_t>()[0], t);
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(allocator.stats().live_bytes, 0);
  EXPECT_LE(allocator.stats().system_calls, 1 + 5 * kThreads);
}

TEST(StreamTest, ScratchIsKeptAndGrows) {
  ThreadTeam team(2);
  Allocator allocator;
  Stream stream(team, allocator);
  std::byte* first = stream.scratch(0, 1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  EXPECT_EQ(stream.scratch(0, 500), first);
  EXPECT_NE(stream.scratch(1, 1000), first);
  std::memset(stream.scratch(0, 5000), 1, 5000);
  const int64_t calls = allocator.stats().system_calls;
  for (int i = 0; i < 10; ++i) stream.scratch(0, 5000);
  EXPECT_EQ(allocator.stats().system_calls, calls);
}

}  // namespace
}  // namespace weft
