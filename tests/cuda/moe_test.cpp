// Experts on devices: few tokens, whose choice stays there, have the bits that they have among more, whose rows the
// host orders.
#include "weft/nn/moe.h"

#include "kernels/workbench.h"

namespace weft {
namespace {

struct MoeCase {
  const char* name;
  RouteRule rule;
  bool is_gated;
  int64_t shared_ffn;
};
class CudaMoeTest : public testing::TestWithParam<MoeCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, CudaMoeTest,
    testing::Values(MoeCase{"gated", {}, true, 0}, MoeCase{"plain", {}, false, 0},
                    MoeCase{"sigmoid_in_groups_with_a_shared_one",
                            {.gate = RouterGate::sigmoid, .scale = 2.5f, .groups = 4, .groups_per_token = 2},
                            true,
                            16}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaMoeTest, FewTokensHaveTheBitsTheyHaveAmongMore) {
  const MoeCase& c = GetParam();
  constexpr int64_t kTokens = 7, kHidden = 40, kExperts = 8, kPerToken = 2;
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
    p.value = bench.on_device(bench.random(DType::bf16, p.shape, p.name));
    p.value_changed();
  });
  const Tensor x = bench.on_device(bench.random(DType::bf16, {kTokens, kHidden}, "x"));
  const auto rows_of = [&](int64_t first, int64_t count) {
    const Pass pass{.num_tokens = count};
    return bench.values(moe(Var{x.slice_rows(first, count), &context}, pass).value);
  };
  const std::vector<double> all = rows_of(0, kTokens);  // 14 copies, more than experts
  const auto expected = [&](int64_t first, int64_t count) {
    return std::vector(all.begin() + first * kHidden, all.begin() + (first + count) * kHidden);
  };
  for (int64_t first = 0; first < kTokens; ++first) EXPECT_EQ(rows_of(first, 1), expected(first, 1)) << first;
  EXPECT_EQ(rows_of(1, 4), expected(1, 4)) << "8 copies, as many as experts";
}

}  // namespace
}  // namespace weft
