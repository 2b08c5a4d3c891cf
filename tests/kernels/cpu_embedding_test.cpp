// Embedding on the cpu: rows, rows with positions, and the gradient of the table, against the reference.
#include "cpu_everywhere.h"
#include "random_blocks.h"
#include "weft/kernels/cpu/cpu.h"

namespace weft {
namespace {

struct EmbeddingCase {
  int64_t tokens, cols;
  DType dtype;
};

class CpuEmbeddingTest : public testing::TestWithParam<EmbeddingCase> {
 protected:
  static constexpr int64_t kVocab = 37, kPositions = 11;
  void SetUp() override {
    for (int64_t t = 0; t < GetParam().tokens; ++t) {
      ids.push_back(int32_t(philox(3, uint64_t(t))[0] % kVocab));
      positions.push_back(int32_t(t % kPositions));
    }
  }
  Workbench bench;
  std::vector<int32_t> ids, positions;
};
INSTANTIATE_TEST_SUITE_P(All, CpuEmbeddingTest,
                         testing::Values(EmbeddingCase{0, 8, DType::f32}, EmbeddingCase{1, 1, DType::f32},
                                         EmbeddingCase{5, 7, DType::bf16}, EmbeddingCase{9, 63, DType::f32},
                                         EmbeddingCase{100, 64, DType::bf16}, EmbeddingCase{100, 65, DType::f32},
                                         EmbeddingCase{300, 1000, DType::bf16}, EmbeddingCase{30, 4099, DType::f32},
                                         EmbeddingCase{9, 63, DType::f16}, EmbeddingCase{300, 1000, DType::f16}),
                         [](const auto& test) {
                           return fmt::format("{}x{}_{}", test.param.tokens, test.param.cols,
                                              name_of(test.param.dtype));
                         });

TEST_P(CpuEmbeddingTest, EqualsReference) {
  const auto [tokens, cols, dtype] = GetParam();
  const Tensor table = bench.random(dtype, {kVocab, cols}, "table");
  const Tensor position_table = bench.random(dtype, {kPositions, cols}, "positions");
  for (const Tensor& added : {Tensor(), position_table}) {
    const Tensor y = bench.empty(dtype, {tokens, cols});
    reference_kernels().embedding(bench.stream, y, table, ids.data(), added, positions.data());
    // A sum of two is rounded once from f32 or from double: exactly the same but for f32's own rounding.
    expect_everywhere({{"y", y, added ? rounding_of(dtype) : 0}},
                      [&](Stream& stream, const std::vector<Tensor>& out) {
                        cpu::embedding(stream, out[0], table, ids.data(), added, positions.data());
                      });
  }
}

TEST_P(CpuEmbeddingTest, BackwardEqualsReference) {
  const auto [tokens, cols, dtype] = GetParam();
  const Tensor dy = bench.random(dtype, {tokens, cols}, "dy");
  const Tensor before = bench.random(DType::f32, {kVocab, cols}, "dtable"), dtable = bench.copy(before);
  reference_kernels().embedding_backward(bench.stream, dtable, dy, ids.data());
  expect_everywhere({{"dtable", dtable, 2e-6, before}}, [&](Stream& stream, const std::vector<Tensor>& out) {
    cpu::embedding_backward(stream, out[0], dy, ids.data());
  });
}

class EmbeddingOfBlocksTest : public testing::TestWithParam<BlockType> {};
INSTANTIATE_TEST_SUITE_P(Types, EmbeddingOfBlocksTest, testing::ValuesIn(kBlockTypes),
                         [](const auto& test) { return std::string(name_of(test.param)); });

// Rows 4 to 9 of a table of 13, of whole blocks and of parts of them.
TEST_P(EmbeddingOfBlocksTest, EqualsReference) {
  Workbench bench;
  const std::vector<int32_t> ids = {4, 9, 4, 0, 12, 5, 4};
  const TableRows part(ids.data(), 4, 13);
  for (const auto& [cols, skip] : {std::pair<int64_t, int64_t>{512, 0}, {300, 0}, {261, 17}}) {
    const BlockMatrix table = random_blocks(bench, GetParam(), 6, cols, skip);
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      const Tensor y = bench.empty(dtype, {7, cols});
      reference_kernels().embedding_of_blocks(bench.stream, y, table, part);
      expect_everywhere({{"y", y}}, [&](Stream& stream, const std::vector<Tensor>& out) {
        cpu::embedding_of_blocks(stream, out[0], table, part);
      });
    }
  }
}

TEST(CpuEmbedding, NamesAnIdOutsideOfTheTable) {
  Workbench bench;
  const Tensor table = bench.random(DType::f32, {4, 8}, "table"), y = bench.empty(DType::f32, {2, 8});
  const int32_t ids[] = {1, 4};
  EXPECT_THROW(cpu::embedding(bench.stream, y, table, ids, {}, nullptr), Error);
  EXPECT_THROW(cpu::embedding_backward(bench.stream, table, y, ids), Error);
  const BlockMatrix blocks = random_blocks(bench, BlockType::q8_0, 4, 8, 0);
  EXPECT_THROW(cpu::embedding_of_blocks(bench.stream, y, blocks, ids), Error);
  EXPECT_THROW(cpu::embedding_of_blocks(bench.stream, bench.empty(DType::f32, {2, 9}), blocks, ids), Error);
}

}  // namespace
}  // namespace weft
