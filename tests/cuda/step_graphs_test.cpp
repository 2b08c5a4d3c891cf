// Steps that repeat give the bits of work that is queued one by one, whatever changes between them, and become graphs
// where nothing does.
#include "weft/tensor/cuda/step_graphs.h"

#include <gtest/gtest.h>

#include <numeric>
#include <optional>

#include "cuda/emulation.h"
#include "kernels/workbench.h"
#include "weft/tensor/cuda/cuda_queue.h"
#include "weft/tensor/repeated_step.h"

namespace weft {
namespace {

constexpr int64_t kGraphRows = 50, kGraphCols = 24;

// What may be odd about a step.
struct Oddity {
  bool reads_in_the_middle = false;  // the host does, a number that it gives to what comes next
  bool has_a_new_factor = false;     // a kernel's argument
  bool has_new_factors = false;      // an argument of a kernel in each layer
  int64_t steps_of_a_factor = 1;     // that the factors stay the same for
  bool is_longer = false;            // one op more
  int64_t more_ops = 0;
  bool has_a_large_upload = false;
  bool clears_memory = false;  // that was given back within the step
  bool trims_memory = false;
  bool throws = false;
  bool looks_up_again = false;  // uploads ids a second time, which are
  int32_t apart = 0;            // so much farther in the table
};

// A small model: rows of a table, and a dozen ops on them through memory that comes and goes.
class Steps {
 public:
  explicit Steps(bool in_graphs) : in_graphs_(in_graphs) {}

  std::vector<double> run(int64_t step, int64_t rows, const Oddity& odd = {}) {
    std::vector<int32_t> ids(static_cast<size_t>(rows));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t((step * 7 + int64_t(i) * 11) % kGraphRows);
    if (!results_.count(rows)) results_[rows] = bench_.empty(DType::f32, {rows, kGraphCols});
    const Tensor result = results_[rows];
    {
      const RepeatedStep in_this_scope(bench_.stream, this, in_graphs_ ? rows : 0);
      compute(result, ids, step, odd);
    }
    return bench_.values(result);
  }

  StepGraphs::Stats stats() { return static_cast<CudaQueue&>(bench_.stream.queue()).steps().stats(); }
  Workbench& bench() { return bench_; }

 private:
  Tensor temporary(int64_t rows) { return bench_.empty(DType::f32, {rows, kGraphCols}); }

  void compute(const Tensor& result, const std::vector<int32_t>& ids, int64_t step, const Oddity& odd) {
    const Kernels& k = cuda_kernels();
    Stream& stream = bench_.stream;
    const auto rows = int64_t(ids.size());
    Tensor x = temporary(rows);
    k.embedding(stream, x, table_, ids.data(), {}, nullptr);
    for (int layer = 0; layer < 4; ++layer) {
      Tensor y = temporary(rows);
      k.scale(stream, y, x, 0.5f + float(layer));
      if (odd.throws && layer == 1) throw Error("a step that fails");
      if (odd.has_new_factors) k.scale(stream, y, y, 1 + 0.125f * float(step / odd.steps_of_a_factor));
      if (odd.is_longer && layer == 1) k.add(stream, y, y, x);
      const Tensor sum = temporary(rows);
      k.add(stream, sum, y, x);
      y = {};
      if (odd.clears_memory && layer == 2) {
        const Tensor zeros = bench_.allocator.zeros(DType::f32, {rows, kGraphCols});  // where y was
        k.add(stream, sum, sum, zeros);
      }
      if (odd.trims_memory && layer == 2) {
        bench_.allocator.trim();
        (void)bench_.allocator.zeros(DType::f32, {rows, kGraphCols});
      }
      k.softcap(stream, sum, sum, 30);
      x = temporary(rows);
      stream.copy(x, sum);
      if (odd.reads_in_the_middle && layer == 1)
        k.scale(stream, x, x, k.sum_of_squares(stream, {&x, 1}) > 1000.0 * double(rows) ? 0.25f : 1.5f);
    }
    if (odd.looks_up_again) {
      std::vector<int32_t> others = ids;
      for (int32_t& id : others) id = int32_t((id + odd.apart) % kGraphRows);
      const Tensor second = temporary(rows);
      k.embedding(stream, second, table_, others.data(), {}, nullptr);
      k.add(stream, x, x, second);
    }
    if (odd.has_a_large_upload) {
      const std::vector<float> many(StepGraphs::kUploadBytes / sizeof(float) + 5, float(step));
      const Tensor first = temporary(rows);
      stream.queue().copy_on_device(first.raw(), stream.queue().upload(many.data(), many.size() * sizeof(float)),
                                    first.bytes());
      k.add(stream, x, x, first);
    }
    if (odd.has_a_new_factor) k.scale(stream, x, x, float(step));
    for (int64_t i = 0; i < 5 + odd.more_ops; ++i) k.softcap(stream, x, x, 40 + float(i));
    k.scale(stream, result, x, 2);
  }

  bool in_graphs_;
  Workbench bench_{1, Device::cuda};
  Tensor table_ = bench_.on_device(bench_.random(DType::f32, {kGraphRows, kGraphCols}, "table"));
  std::map<int64_t, Tensor> results_;
};

struct StepCase {
  const char* name;
  Oddity (*of_step)(int64_t step);
  int64_t most_issued;  // of the last ten steps
};
class StepGraphsTest : public testing::TestWithParam<StepCase> {};
INSTANTIATE_TEST_SUITE_P(
    Steps, StepGraphsTest,
    testing::Values(StepCase{"alike", [](int64_t) { return Oddity{}; }, 0},
                    StepCase{"read_in_the_middle", [](int64_t) { return Oddity{.reads_in_the_middle = true}; }, 40},
                    StepCase{"a_new_factor_each", [](int64_t) { return Oddity{.has_a_new_factor = true}; }, 10},
                    StepCase{"longer_now_and_then", [](int64_t s) { return Oddity{.is_longer = s % 5 == 0}; }, 120},
                    StepCase{"large_uploads", [](int64_t) { return Oddity{.has_a_large_upload = true}; }, 60},
                    StepCase{"the_same_upload_again", [](int64_t) { return Oddity{.looks_up_again = true}; }, 0},
                    StepCase{"until_it_differs",
                             [](int64_t s) { return Oddity{.looks_up_again = true, .apart = s < 12 ? 0 : 3}; }, 0},
                    StepCase{"other_uploads_the_same_now_and_then",
                             [](int64_t s) { return Oddity{.looks_up_again = true, .apart = int32_t(s % 5)}; }, 0},
                    StepCase{"the_same_uploads_other_now_and_then",
                             [](int64_t s) { return Oddity{.looks_up_again = true, .apart = s % 9 == 4 ? 7 : 0}; },
                             0},
                    StepCase{"memory_cleared", [](int64_t) { return Oddity{.clears_memory = true}; }, 60},
                    StepCase{"memory_given_back", [](int64_t s) { return Oddity{.trims_memory = s % 6 == 3}; }, 160}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(StepGraphsTest, GiveTheSameBits) {
  Steps plain(false), graphs(true);
  int64_t issued = 0, launched = 0;
  for (int64_t step = 1; step <= 30; ++step) {
    if (step == 21) issued = graphs.stats().issued, launched = graphs.stats().launched;
    const Oddity odd = GetParam().of_step(step);
    ASSERT_EQ(graphs.run(step, 3, odd), plain.run(step, 3, odd)) << "step " << step;
  }
  EXPECT_EQ(plain.stats().launched, 0);
  EXPECT_GE(graphs.stats().launched - launched, 8);
  EXPECT_LE(graphs.stats().issued - issued, GetParam().most_issued);
}

TEST(StepGraphsOfQueueTest, WhatIsUploadedTwiceIsThereOnce) {
  Workbench bench(1, Device::cuda);
  DeviceQueue& queue = bench.stream.queue();
  const std::vector<int32_t> some{1, 2, 3}, same = some, others{1, 2, 4};
  for (int step = 0; step < 4; ++step) {
    const RepeatedStep in_this_scope(bench.stream, this, 1);
    const auto upload = [&](const std::vector<int32_t>& x) {
      return queue.upload(x.data(), x.size() * sizeof(int32_t));
    };
    const void *const first = upload(some), *const second = upload(same), *const third = upload(others);
    EXPECT_EQ(second, first);
    EXPECT_NE(third, first);
    EXPECT_EQ(upload(others), third);
  }
}

TEST(StepGraphsOfQueueTest, NumbersOfRowsHaveGraphsOfTheirOwnUpToALimit) {
  Steps plain(false), graphs(true);
  constexpr auto kMost = int64_t(StepGraphs::kMostPlans);
  for (int64_t step = 0; step < 30; ++step) {
    const int64_t rows = 1 + step % 3;
    ASSERT_EQ(graphs.run(step, rows), plain.run(step, rows)) << "step " << step;
  }
  EXPECT_EQ(graphs.stats().plans, 3);
  const int64_t captured = graphs.stats().captured;
  EXPECT_GE(captured, 3);
  for (int64_t step = 0; step < 2 * (kMost + 2); ++step) {
    const int64_t rows = 1 + step / 2;  // the first ones go
    ASSERT_EQ(graphs.run(step, rows), plain.run(step, rows)) << "step " << step;
  }
  EXPECT_EQ(graphs.stats().plans, kMost);
  const int64_t before = graphs.stats().captured;
  for (int64_t step = 0; step < 3; ++step) ASSERT_EQ(graphs.run(step, 1), plain.run(step, 1));
  EXPECT_GT(graphs.stats().captured, before);  // it had gone
}

TEST(StepGraphsOfQueueTest, NumbersThatChangeByThemselvesAreLeftOutTogether) {
  Steps plain(false), graphs(true);
  constexpr Oddity kNewFactors{.has_new_factors = true};
  int64_t issued = 0, launched = 0;
  for (int64_t step = 1; step <= 9; ++step) {
    if (step == 7) issued = graphs.stats().issued, launched = graphs.stats().launched;
    ASSERT_EQ(graphs.run(step, 3, kNewFactors), plain.run(step, 3, kNewFactors)) << "step " << step;
  }
  EXPECT_EQ(graphs.stats().launched - launched, 3 * 5);  // before, between and behind the layers' factors
  EXPECT_EQ(graphs.stats().issued - issued, 3 * 4);      // the factors
}

TEST(StepGraphsOfQueueTest, NumbersThatChangeSeldomStayInGraphs) {
  Steps plain(false), graphs(true);
  constexpr int64_t kSteps = 20;  // of a number, more than what is soon
  int64_t issued = 0;
  for (int64_t step = 0; step < 6 * kSteps; ++step) {
    if (step % kSteps == 2) issued = graphs.stats().issued;
    const Oddity odd{.has_new_factors = true, .steps_of_a_factor = kSteps};
    ASSERT_EQ(graphs.run(step, 3, odd), plain.run(step, 3, odd)) << "step " << step;
    if (step % kSteps >= 2) EXPECT_EQ(graphs.stats().issued, issued) << "step " << step;
  }
}

TEST(StepGraphsOfQueueTest, StepsOfVeryManyAreGraphsUpToALimit) {
  Steps plain(false), graphs(true);
  constexpr auto kMost = int64_t(StepGraphs::kMostOpsOfStep);
  constexpr Oddity kMany{.more_ops = kMost};
  int64_t issued = 0, launched = 0;
  for (int64_t step = 1; step <= 3; ++step) {
    if (step == 3) issued = graphs.stats().issued, launched = graphs.stats().launched;
    ASSERT_EQ(graphs.run(step, 1, kMany), plain.run(step, 1, kMany)) << "step " << step;
  }
  int64_t num_graphs = 0;
  for (auto left = kMost, size = int64_t(StepGraphs::kFirstOps); left > 0; ++num_graphs)
    left -= size, size = std::min(2 * size, int64_t(StepGraphs::kMostOps));
  EXPECT_EQ(graphs.stats().launched - launched, num_graphs);
  EXPECT_GT(graphs.stats().issued - issued, 0);
  EXPECT_LT(graphs.stats().issued - issued, 100);
}

TEST(StepGraphsOfQueueTest, OtherAddressesAreOtherWork) {
  Steps plain(false), graphs(true);
  Tensor held;
  for (int64_t step = 0; step < 24; ++step) {
    // Lies where a step's first tensor would.
    if (step % 6 == 3) held = graphs.bench().empty(DType::f32, {2, kGraphCols});
    if (step % 6 == 5) held = {};
    if (held) cuda_kernels().fill(graphs.bench().stream, held, 7);
    ASSERT_EQ(graphs.run(step, 2), plain.run(step, 2)) << "step " << step;
    if (!held) continue;
    for (const double x : graphs.bench().values(held)) ASSERT_EQ(x, 7) << "step " << step;
  }
  EXPECT_GT(graphs.stats().launched, 4);
}

TEST(StepGraphsOfQueueTest, AStepThatFailsLeavesTheNextAsTheyWere) {
  Steps plain(false), graphs(true);
  for (int64_t step = 0; step < 12; ++step) {
    if (step % 4 == 3) EXPECT_THROW(graphs.run(step, 3, {.throws = true}), Error);
    ASSERT_EQ(graphs.run(step, 3), plain.run(step, 3)) << "step " << step;
  }
  EXPECT_GT(graphs.stats().launched, 0);
}

class StepGraphsFailures : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Ways, StepGraphsFailures, testing::Values("instantiate", "launch", "later"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(StepGraphsFailures, AreSaidOnceAndStepsGoOnWithoutGraphs) {
  if (!kIsEmulated) GTEST_SKIP() << "a card's graphs do not fail when they are told to";
  const std::string way = GetParam();
  std::optional<EmulatorSetting> failure;
  Steps plain(false), graphs(true);
  testing::internal::CaptureStderr();
  for (int64_t step = 0; step < 12; ++step) {
    if (step == (way == "later" ? 6 : 0)) failure.emplace("WEFT_EMULATED_NO_GRAPHS", way == "later" ? "launch" : way);
    ASSERT_EQ(graphs.run(step, 3), plain.run(step, 3)) << "step " << step;
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("without graphs from now on"), std::string::npos) << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_EQ(graphs.stats().launched > 0, way == "later");
  EXPECT_EQ(graphs.stats().plans, 0);
}

// What the emulator's captures refuse, as a card's do: else the tests above would not show it.
TEST(EmulatedCaptureTest, RefusesWhatCardsRefuse) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  for (const bool allocates : {true, false}) {
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    void* memory = nullptr;
    EXPECT_NE(allocates ? cudaMalloc(&memory, 16) : cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_NE(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(graph, nullptr);
  }
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace weft
