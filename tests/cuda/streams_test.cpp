// Streams that wait for each other, while two threads of the host wait for one each.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

namespace {

TEST(CudaStreamsTest, MayWaitForEachOther) {
  constexpr int kNumRounds = 20'000;
  cudaStream_t first, second;
  cudaEvent_t begun, answered;
  for (cudaStream_t* stream : {&first, &second})
    ASSERT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
  for (cudaEvent_t* event : {&begun, &answered})
    ASSERT_EQ(cudaEventCreateWithFlags(event, cudaEventDisableTiming), cudaSuccess);
  std::barrier both(2);
  std::thread other([&] {
    for (int round = 0; round < kNumRounds; ++round) {
      both.arrive_and_wait();
      cudaStreamSynchronize(second);
    }
  });
  int num_failed = 0;
  for (int round = 0; round < kNumRounds; ++round) {
    for (const cudaError_t status : {cudaEventRecord(begun, first), cudaStreamWaitEvent(second, begun, 0),
                                     cudaEventRecord(answered, second), cudaStreamWaitEvent(first, answered, 0)})
      num_failed += status != cudaSuccess;
    both.arrive_and_wait();
    num_failed += cudaStreamSynchronize(first) != cudaSuccess;
  }
  other.join();
  EXPECT_EQ(num_failed, 0);
  for (cudaEvent_t event : {begun, answered}) cudaEventDestroy(event);
  for (cudaStream_t stream : {first, second}) cudaStreamDestroy(stream);
}

}  // namespace
