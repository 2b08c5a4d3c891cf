// Choices of rows on a device are those of whole rows on the host, bit for bit, and whole rows do not come.
#include "serve/choice_cases.h"
#include "support/rank.h"
#include "weft/tensor/host_access.h"

namespace weft {
namespace {

class CudaTokenChoiceTest : public testing::TestWithParam<ChoiceCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, CudaTokenChoiceTest, testing::ValuesIn(kChoiceCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(CudaTokenChoiceTest, IsThatOfWholeRows) {
  constexpr int64_t kRows = 12;
  Workbench bench;
  TestRank rank(cuda_kernels(), 1, Device::cuda);
  const Tensor logits = Choices(GetParam(), kRows).logits(bench);
  LogitRows here, there;
  here.begin(logits, GetParam().vocab);
  const auto want = Choices(GetParam(), kRows).of(here);
  const Tensor on_device = rank.context.empty(DType::f32, logits.shape());
  rank.stream.copy(on_device, logits);
  there.begin(on_device, GetParam().vocab);
  EXPECT_EQ(Choices(GetParam(), kRows).by_wishes(there, rank.context), want);
  if (GetParam().comes_whole)
    EXPECT_GT(there.num_copied(), 0);
  else
    EXPECT_EQ(there.num_copied(), 0);
}

// Random rows, on the host and on a device.
struct RowsOnBoth {
  TestRank rank{cuda_kernels(), 1, Device::cuda};
  Workbench bench;
  Tensor logits, on_device;

  RowsOnBoth(int64_t rows, int64_t columns)
      : logits(bench.random(DType::f32, {rows, columns}, "rows")),
        on_device(rank.context.empty(DType::f32, logits.shape())) {
    rank.stream.copy(on_device, logits);
  }
};

// Neighbours come together, and rows that nobody wishes for do not come.
TEST(CudaTokenChoiceTest, WholeRowsComeAsTheyAre) {
  RowsOnBoth both(6, 11);
  auto& [rank, bench, logits, on_device] = both;
  LogitRows rows;
  rows.begin(on_device, 10);
  Sampler greedy({.temperature = 0});
  for (const int64_t row : {1, 2, 5}) rows.wish_whole(row);
  rows.wish_choice(4, greedy, 0, {}, false);
  rows.find(rank.context);
  EXPECT_FALSE(rows.may_change());
  rows.read(rank.context);
  EXPECT_EQ(rows.num_copied(), 3);
  for (const int64_t row : {1, 2, 5}) {
    const std::span<const float> got = rows.whole(row);
    const auto* const want = logits.data<float>() + row * 11;
    EXPECT_EQ(std::vector<float>(got.begin(), got.end()), std::vector<float>(want, want + 10)) << row;
  }
  EXPECT_THROW(rows.whole(0), Error);
  EXPECT_THROW(rows.whole(4), Error);
  const auto* const of_four = logits.data<float>() + 4 * 11;
  EXPECT_EQ(rows.choose(4, greedy, 0, {}), int32_t(std::max_element(of_four, of_four + 10) - of_four));
}

// Logits that were asked about may change before what was found is read; rows that only they would tell are lost.
TEST(CudaTokenChoiceTest, IsReadAfterTheLogitsHaveChanged) {
  constexpr int64_t kRows = 3, kVocab = 2000;
  RowsOnBoth both(kRows, kVocab);
  auto& [rank, bench, logits, on_device] = both;
  Sampler greedy({.temperature = 0}), flat({.temperature = 5, .top_p = 0.99, .seed = 1});
  LogitRows rows;
  rows.begin(on_device, kVocab);
  rows.wish_choice(0, greedy, 0, {}, true);
  rows.wish_choice(2, flat, 1, {}, false);
  rows.find(rank.context);
  ASSERT_TRUE(rows.may_change());
  EXPECT_EQ(rows.place(2), 1);
  EXPECT_FALSE(rows.may_be_lost(0));
  EXPECT_TRUE(rows.may_be_lost(2));
  // What the next step reads of it.
  const Tensor ids = rank.context.empty(DType::i32, {3});
  const std::vector<int32_t> said{9, -1, 4};
  cuda_kernels().place_tokens(rank.stream, ids, said.data(), rows.found_there());
  cuda_kernels().fill(rank.stream, on_device, 0);
  rows.read(rank.context, true);
  const auto* const first = logits.data<float>();
  const auto want = int32_t(std::max_element(first, first + kVocab) - first);
  EXPECT_EQ(rows.choose(0, greedy, 0, {}), want);
  EXPECT_NEAR(rows.log_sum(0), log_sum_exp({first, size_t(kVocab)}), 1e-5);
  EXPECT_FALSE(rows.is_lost(0));
  EXPECT_TRUE(rows.is_lost(2));
  EXPECT_EQ(rows.num_copied(), 0);
  const Tensor placed = on_host(rank.stream, ids);
  EXPECT_EQ(std::vector<int32_t>(placed.data<int32_t>(), placed.data<int32_t>() + 3),
            (std::vector<int32_t>{9, want, 4}));
}

// Of tokens that are known, as of prompts: without a row, all that there is to tell but for several alternatives.
TEST(CudaTokenChoiceTest, TellsOfGivenTokens) {
  constexpr int64_t kRows = 40, kVocab = 3001;
  RowsOnBoth both(kRows, kVocab);
  auto& [rank, bench, logits, on_device] = both;
  LogitRows here, there;
  here.begin(logits, kVocab - 1), there.begin(on_device, kVocab - 1);
  const auto token_of = [](int64_t row) { return int32_t(row * 977 % (kVocab - 1)); };
  for (int64_t row = 0; row < kRows; ++row) there.wish_token(row, token_of(row));
  there.find(rank.context);
  there.read(rank.context);
  EXPECT_EQ(there.num_copied(), 0);
  LogProbs memory;
  const auto told = [&](const LogitRows& rows, int64_t row, int32_t num_top) {
    const TokenLogProbs p = rows.log_probs(row, token_of(row), num_top, rows.log_sum(row), memory);
    std::string text = fmt::format("{}: {} at {}", p.token.token, p.token.log_prob, p.rank);
    for (const TokenLogProb& top : p.top) text += fmt::format(", {}: {}", top.token, top.log_prob);
    return text;
  };
  for (int64_t row = 0; row < kRows; ++row)
    for (const int32_t num_top : {0, 1}) EXPECT_EQ(told(there, row, num_top), told(here, row, num_top));
  EXPECT_THROW(told(there, 0, 2), Error);
  EXPECT_THROW(there.log_probs(0, 5, 0, 1, memory), Error);
}

}  // namespace
}  // namespace weft
