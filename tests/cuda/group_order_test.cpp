// Copies that a device puts in the order of their groups lie as the host's kernels put them, in runs that the
// device's products take.
#include "kernels/workbench.h"
#include "weft/kernels/cuda/group_rows.h"

namespace weft {
namespace {

struct OrderCase {
  const char* name;
  int64_t tokens, per_token, groups;
  int64_t most_chosen;  // groups from which copies are
};
class CudaGroupOrderTest : public testing::TestWithParam<OrderCase> {};
INSTANTIATE_TEST_SUITE_P(All, CudaGroupOrderTest,
                         testing::Values(OrderCase{"few_copies_of_many_groups", 5, 2, 40, 40},
                                         OrderCase{"more_than_a_block_has_threads", 700, 3, 7, 7},
                                         OrderCase{"one_group", 9, 1, 1, 1},
                                         OrderCase{"groups_of_none", 80, 2, 16, 3},
                                         OrderCase{"more_groups_than_a_block_has_threads", 30, 4, 600, 600}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaGroupOrderTest, IsThatOfTheHost) {
  const OrderCase& c = GetParam();
  const int64_t copies = c.tokens * c.per_token;
  Workbench host, device(1, Device::cuda);
  const Tensor chosen = host.empty(DType::i32, {c.tokens, c.per_token});
  for (int64_t i = 0; i < copies; ++i) chosen.data<int32_t>()[i] = int32_t(i * i * 31 % 1009 % c.most_chosen);
  const auto order = [&](Workbench& bench, const Kernels& kernels) {
    GroupOrderArgs args{.at = bench.empty(DType::i32, chosen.shape()),
                        .tokens = bench.empty(DType::i32, {copies}),
                        .runs = bench.empty(DType::i32, {copies, 3}),
                        .chosen = bench.on_device(chosen),
                        .groups = c.groups};
    kernels.order_by_group(bench.stream, args);
    for (Tensor* t : {&args.at, &args.tokens, &args.runs}) *t = bench.on_host(*t);
    return args;
  };
  const auto numbers = [](const Tensor& t) {
    return std::vector<int32_t>(t.data<int32_t>(), t.data<int32_t>() + t.numel());
  };
  const GroupOrderArgs want = order(host, reference_kernels()), got = order(device, cuda_kernels());
  EXPECT_EQ(numbers(got.at), numbers(want.at));
  EXPECT_EQ(numbers(got.tokens), numbers(want.tokens));
  std::vector<int64_t> starts(size_t(c.groups) + 1);
  for (int64_t i = 0; i < copies; ++i) ++starts[size_t(chosen.data<int32_t>()[i]) + 1];
  for (size_t g = 0; g + 1 < starts.size(); ++g) starts[g + 1] += starts[g];
  std::vector<int32_t> runs;
  for (const cuda::GroupRows& r : cuda::cut_groups(starts, cuda::run_rows(copies, c.groups)))
    runs.insert(runs.end(), {r.first, r.count, r.group});
  EXPECT_LE(int64_t(runs.size()), 3 * cuda::most_runs(copies, c.groups));
  runs.resize(size_t(3 * copies));
  EXPECT_EQ(numbers(got.runs), runs);
}

TEST(GroupRunsTest, AreShortWhereGroupsAre) {
  EXPECT_EQ(cuda::run_rows(100, 128), 4);
  EXPECT_EQ(cuda::run_rows(256, 128), 8);
  EXPECT_EQ(cuda::run_rows(128 * 17, 128), 64);
  EXPECT_EQ(cuda::run_rows(128 * 200, 128), 128);
  EXPECT_EQ(cuda::most_runs(5, 128), 5);
  EXPECT_EQ(cuda::most_runs(256, 128), 32 + 128);
}

}  // namespace
}  // namespace weft
