// NCCL: groups move tensors as the host's transports do, training is the same, and a failure ends the others.
#include "cuda/emulation.h"
#include "support/rank.h"
#include "train/mesh_cases.h"
#include "weft/comm/nccl/nccl_transport.h"
#include "weft/tensor/cuda/cuda_device.h"
#include "weft/tensor/host_access.h"

namespace weft {
namespace {

class NcclTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_devices().size() < 8) GTEST_SKIP() << "this machine has " << cuda_devices().size() << " devices, not 8";
  }
  const EmulatorSetting devices_{"WEFT_EMULATED_DEVICES", "8"};
};

// Ranks with a device each.
void on_devices(int ranks, const std::function<void(TestRank&, Communicator&)>& body) {
  run_ranks(ranks, [&](Communicator& world) {
    use_cuda_device(world.rank());
    TestRank rank(kernels_of(Device::cuda), 1, Device::cuda);
    world.use_stream(rank.stream);
    body(rank, world);
  });
}

Tensor filled(TestRank& rank, DType dtype, int64_t n, float first, float step) {
  const Tensor wide = rank.context.empty(DType::f32, {n}), t = rank.context.empty(dtype, {n});
  fill_on_host(rank.stream, wide, [&](const Tensor& host) {
    for (int64_t i = 0; i < n; ++i) host.data<float>()[i] = first + step * float(i);
  });
  rank.context.kernels.convert(rank.stream, t, wide);
  return t;
}

std::vector<float> values(TestRank& rank, const Tensor& t) {
  const Tensor wide = rank.context.empty(DType::f32, {t.numel()});
  rank.context.kernels.convert(rank.stream, wide, t.reshape({t.numel()}));
  const Tensor host = on_host(rank.stream, wide);
  return {host.data<float>(), host.data<float>() + host.numel()};
}

TEST_F(NcclTest, IsTakenWhereEveryRankHasADevice) {
  ASSERT_TRUE(has_nccl());
  run_ranks(2, [&](Communicator& world) {
    TestRank rank(kernels_of(Device::cuda), 1, Device::cuda);
    use_cuda_device(world.rank());
    EXPECT_NE(make_nccl_transport(world, rank.stream), nullptr);
    use_cuda_device(0);
    EXPECT_EQ(make_nccl_transport(world, rank.stream), nullptr) << "two ranks share a device";
  });
}

TEST_F(NcclTest, CollectivesGiveWhatTheyPromise) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    on_devices(3, [&](TestRank& rank, Communicator& world) {
      const auto r = float(world.rank());
      const Tensor x = filled(rank, dtype, 4, r, 1);
      world.all_reduce(x);
      EXPECT_EQ(values(rank, x), (std::vector<float>{3, 6, 9, 12}));
      const Tensor most = filled(rank, dtype, 2, r, 0);
      world.all_reduce(most, Reduction::max);
      EXPECT_EQ(values(rank, most), (std::vector<float>{2, 2}));

      const Tensor all = rank.context.empty(dtype, {6});
      world.all_gather(all, filled(rank, dtype, 2, 10 * r, 1));
      EXPECT_EQ(values(rank, all), (std::vector<float>{0, 1, 10, 11, 20, 21}));
      const Tensor part = rank.context.empty(dtype, {2});
      world.reduce_scatter(part, all);
      EXPECT_EQ(values(rank, part), (std::vector<float>{30 * r, 30 * r + 3}));
      const Tensor one = filled(rank, dtype, 2, r, 1);
      world.broadcast(one, 2);
      EXPECT_EQ(values(rank, one), (std::vector<float>{2, 3}));
    });
}

TEST_F(NcclTest, RowsGoWhereCountsSay) {
  on_devices(2, [](TestRank& rank, Communicator& world) {
    const bool is_first = world.rank() == 0;
    const std::vector<int64_t> in = is_first ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{0, 1};
    const std::vector<int64_t> out = is_first ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{2, 1};
    const Tensor rows = filled(rank, DType::f32, is_first ? 6 : 2, is_first ? 0 : 10, 1);
    const Tensor arrived = rank.context.empty(DType::f32, {is_first ? 1 : 3, 2});
    world.all_to_all(arrived, out, rows.reshape({is_first ? 3 : 1, 2}), in);
    EXPECT_EQ(values(rank, arrived),
              is_first ? (std::vector<float>{0, 1}) : (std::vector<float>{2, 3, 4, 5, 10, 11}));
  });
}

// Two ranks that send first and receive then, many times over.
TEST_F(NcclTest, MessagesDoNotWaitForEachOther) {
  on_devices(2, [](TestRank& rank, Communicator& world) {
    const int other = 1 - world.rank();
    for (int i = 0; i < 20; ++i) world.send(filled(rank, DType::f32, 3, float(100 * world.rank() + i), 1), other, 0);
    for (int i = 0; i < 20; ++i) {
      const Tensor x = rank.context.empty(DType::f32, {3});
      world.recv(x, other, 0);
      EXPECT_EQ(values(rank, x)[0], float(100 * other + i));
    }
  });
}

TEST_F(NcclTest, StartedCallsAndGroupsOfGroups) {
  on_devices(4, [](TestRank& rank, Communicator& world) {
    const auto pair = world.split(world.rank() / 2, world.rank(), "pair");
    std::vector<Pending> pending;
    std::vector<Tensor> sums;
    for (int i = 0; i < 5; ++i) {
      sums.push_back(filled(rank, DType::f32, 2, float(world.rank() + i), 0));
      pending.push_back(pair->start_all_reduce(sums.back()));
    }
    for (Pending& p : pending) p.wait();
    const float of_pair = world.rank() < 2 ? 1 : 5;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(values(rank, sums[size_t(i)])[0], of_pair + float(2 * i));
  });
}

TEST_F(NcclTest, AFailureEndsThoseThatWait) {
  const auto run = [] {
    on_devices(2, [](TestRank& rank, Communicator& world) {
      world.all_reduce(filled(rank, DType::f32, 2, 0, 0));
      if (world.rank() == 1) throw Error("the disk is full");
      const Tensor x = rank.context.empty(DType::f32, {2});
      world.recv(x, 1, 0);
    });
  };
  try {
    run();
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rank 1: the disk is full"), std::string::npos) << e.what();
  }
}

class NcclTrainingTest : public NcclTest, public testing::WithParamInterface<MeshCase> {};
const MeshCase kNcclCases[] = {
    {.shape = {.shard = 2}, .zero = Zero::gradients, .accumulation = 2},
    {.shape = {.replicate = 2, .shard = 2}, .zero = Zero::parameters},
    {.shape = {.tp = 2}, .sequence_parallel = true},
    {.shape = {.pp = 2}, .schedule = ScheduleKind::zbv, .virtual_stages = 2, .accumulation = 4},
    {.shape = {.cp = 2}, .cp_mode = ContextMode::ring},
    {.shape = {.shard = 2, .ep = 2}, .experts = 4},
    {.shape = {.pp = 2, .shard = 2, .tp = 2}, .zero = Zero::gradients, .accumulation = 2},
};
INSTANTIATE_TEST_SUITE_P(Meshes, NcclTrainingTest, testing::ValuesIn(kNcclCases), mesh_case_name);

TEST_P(NcclTrainingTest, EqualsOneRankOfTheCpu) { expect_equal_to_one_rank(GetParam(), Device::cuda); }

}  // namespace
}  // namespace weft
