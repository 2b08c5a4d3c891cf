// Experts on devices: tokens whose choice stays there have the bits that they have where the host orders rows.
#include "weft/nn/moe.h"

#include "kernels/random_blocks.h"

namespace weft {
namespace {

struct MoeCase {
  const char* name;
  RouteRule rule;
  bool is_gated;
  int64_t shared_ffn;
  std::optional<BlockType> blocks = {};  // in which experts' weights lie
};
class CudaMoeTest : public testing::TestWithParam<MoeCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, CudaMoeTest,
    testing::Values(MoeCase{"gated", {}, true, 0}, MoeCase{"plain", {}, false, 0},
                    MoeCase{"in_blocks", {}, true, 0, BlockType::q4_0},
                    MoeCase{"sigmoid_in_groups_with_a_shared_one",
                            {.gate = RouterGate::sigmoid, .scale = 2.5f, .groups = 4, .groups_per_token = 2},
                            true,
                            16}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaMoeTest, TokensHaveTheBitsTheyHaveWhereTheHostOrdersRows) {
  const MoeCase& c = GetParam();
  constexpr int64_t kTokens = 150, kHidden = 40, kExperts = 8, kPerToken = 2;
  Workbench bench(1, Device::cuda);
  Context context{cuda_kernels(), bench.stream};
  MoeConfig config{.gate = {.rule = c.rule, .experts = kExperts, .per_token = kPerToken},
                   .hidden = kHidden,
                   .ffn = 24,
                   .activation = c.is_gated ? Activation::silu : Activation::relu,
                   .is_gated = c.is_gated};
  config.shared.hidden = kHidden, config.shared.ffn = c.shared_ffn;
  Moe moe("moe", config, {});
  moe.each_param([&](Param& p) {
    if (c.blocks && p.shape.rank() == 3) {
      BlockMatrix m = random_blocks(bench, *c.blocks, p.shape[0] * p.shape[1], p.shape[2], 0);
      m.blocks = bench.on_device(m.blocks);
      p.readers = Param::Readers::products;
      return p.hold_in_blocks(std::move(m));
    }
    p.value = bench.on_device(bench.random(DType::bf16, p.shape, p.name));
    p.value_changed();
  });
  const Tensor x = bench.on_device(bench.random(DType::bf16, {kTokens, kHidden}, "x"));
  const auto rows_of = [&](int64_t first, int64_t count, bool is_training = false) {
    const Pass pass{.num_tokens = count, .is_training = is_training};
    return bench.values(moe(Var{x.slice_rows(first, count), &context}, pass).value);
  };
  const auto by_host = [&](int64_t first, int64_t count) { return rows_of(first, count, true); };
  const std::vector<double> all = by_host(0, 7);
  const auto expected = [&](int64_t first, int64_t count) {
    return std::vector(all.begin() + first * kHidden, all.begin() + (first + count) * kHidden);
  };
  for (int64_t first = 0; first < 7; ++first) EXPECT_EQ(rows_of(first, 1), expected(first, 1)) << first;
  EXPECT_EQ(rows_of(1, 4), expected(1, 4)) << "8 copies, as many as experts";
  EXPECT_EQ(rows_of(10, 30), by_host(10, 30)) << "8 copies of an expert in the mean";
  EXPECT_EQ(rows_of(0, kTokens), by_host(0, kTokens)) << "tiles, or of blocks the host again";
}

}  // namespace
}  // namespace weft
