// Launch shapes cover all work, stay inside of what a card launches, and lists of tokens keep their order.
#include "weft/kernels/cuda/launch_shape.h"

#include <gtest/gtest.h>

#include "weft/kernels/cuda/token_lists.h"

namespace weft::cuda {
namespace {

struct Work {
  int64_t rows, cols;
};
class LaunchShapeTest : public testing::TestWithParam<Work> {};
INSTANTIATE_TEST_SUITE_P(Work, LaunchShapeTest,
                         testing::Values(Work{0, 1}, Work{1, 1}, Work{1, 64}, Work{3, 65}, Work{7, 512},
                                         Work{9, 4096}, Work{1000000, 128}, Work{8192, 131072},
                                         Work{int64_t(1) << 24, 8}),
                         [](const auto& test) {
                           return std::to_string(test.param.rows) + "x" + std::to_string(test.param.cols);
                         });

void expect_launchable(const LaunchShape& shape) {
  EXPECT_LT(shape.blocks_x, 1u << 31);
  EXPECT_LE(shape.blocks_y, 65535u);
  EXPECT_LE(shape.blocks_z, 65535u);
  EXPECT_TRUE(shape.threads >= 32 && shape.threads <= 1024 && shape.threads % kWarp == 0) << shape.threads;
}

TEST_P(LaunchShapeTest, ElementsHaveBlocksWhereThereIsWork) {
  const int64_t count = GetParam().rows * GetParam().cols;
  for (const int per_thread : {1, 8}) {
    const LaunchShape shape = over_elements(count, per_thread);
    expect_launchable(shape);
    EXPECT_EQ(shape.num_blocks() == 0, count == 0);
    if (shape.blocks_x > 1)
      EXPECT_LT(int64_t(shape.blocks_x - 1) * shape.threads * per_thread, count) << "a block without work";
  }
}

TEST_P(LaunchShapeTest, RowsHaveAWorkerEach) {
  const auto [rows, cols] = GetParam();
  const LaunchShape plain = over_rows(rows, cols);
  expect_launchable(plain);
  EXPECT_EQ(int64_t(plain.num_blocks()), rows);
  for (const int64_t most : {kAnyNumber, int64_t(100)}) {
    const RowsShape shape = over_long_rows(rows, cols, most);
    expect_launchable(shape.launch);
    EXPECT_EQ(shape.is_warp, cols <= 64);
    const int64_t of_block = shape.is_warp ? shape.launch.threads / kWarp : 1;
    EXPECT_EQ(shape.num_workers, int64_t(shape.launch.num_blocks()) * of_block);
    EXPECT_LE(int64_t(shape.launch.num_blocks()), most);
    EXPECT_LT(shape.num_workers - of_block, std::max<int64_t>(rows, 1)) << "a block without work";
    if (most == kAnyNumber) EXPECT_GE(shape.num_workers, rows);
  }
}

TEST_P(LaunchShapeTest, ColumnSumsMeetEveryRowOnce) {
  const auto [rows, cols] = GetParam();
  for (const int per_thread : {1, 8}) {
    const ColumnSumShape shape = over_column_sums(rows, cols, per_thread);
    expect_launchable(shape.launch);
    EXPECT_GE(int64_t(shape.launch.blocks_x) * kWarp * per_thread, cols);
    EXPECT_EQ(shape.launch.blocks_y, shape.num_groups);
    EXPECT_GE(shape.num_groups * shape.rows_per_group, rows);
    EXPECT_LT((shape.num_groups - 1) * shape.rows_per_group, std::max<int64_t>(rows, 1)) << "a group without rows";
  }
}

TEST(TokenListsTest, HoldTheTokensOfEachRowInOrder) {
  const std::vector<int32_t> ids = {5, 3, 5, 9, 2, 3, 5};
  const TokenLists found = token_lists(TableRows(ids.data(), 3, 10), 7, 4);  // rows 3 to 6 of 10
  EXPECT_EQ(found.tokens, (std::vector<int32_t>{1, 5, 0, 2, 6}));
  ASSERT_EQ(found.lists.size(), 2u);
  EXPECT_TRUE(found.lists[0].row == 0 && found.lists[0].begin == 0 && found.lists[0].end == 2);
  EXPECT_TRUE(found.lists[1].row == 2 && found.lists[1].begin == 2 && found.lists[1].end == 5);
  EXPECT_TRUE(token_lists(TableRows(ids.data(), 6, 10), 7, 3).lists.empty());
}

}  // namespace
}  // namespace weft::cuda
