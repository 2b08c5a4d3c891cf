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
  bool has_shared_gate = false;
};
class CudaMoeTest : public testing::TestWithParam<MoeCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, CudaMoeTest,
    testing::Values(MoeCase{"gated", {}, true, 0}, MoeCase{"plain", {}, false, 0},
                    MoeCase{"in_blocks", {}, true, 0, BlockType::q4_0},
                    MoeCase{"sigmoid_in_groups_with_a_shared_one",
                            {.gate = RouterGate::sigmoid, .scale = 2.5f, .groups = 4, .groups_per_token = 2},
                            true,
                            16},
                    MoeCase{"ranked_by_logits", {.gate = RouterGate::sigmoid, .ranks_logits = true}, true, 16},
                    MoeCase{"a_shared_one_with_a_gate", {.normalises = false}, true, 16, {}, true}),
    [](const auto& test) { return std::string(test.param.name); });

constexpr int64_t kTokens = 150, kHidden = 40, kExperts = 8, kPerToken = 2;

int num_orders = 0;  // that devices made
Kernels counted_kernels() {
  Kernels k = cuda_kernels();
  k.order_by_group = [](Stream& stream, const GroupOrderArgs& args) {
    ++num_orders, cuda_kernels().order_by_group(stream, args);
  };
  return k;
}

// A layer on a device; by_host: whose rows the host orders, as it does where tokens may be dropped.
struct CudaMoe {
  CudaMoe(Workbench& bench, const MoeCase& c, bool by_host) : moe("moe", config(c, by_host), {}) {
    moe.each_param([&](Param& p) {
      if (c.blocks && p.shape.rank() == 3) {
        BlockMatrix m = random_blocks(bench, *c.blocks, p.shape[0] * p.shape[1], p.shape[2], 0);
        m.blocks = bench.on_device(m.blocks);
        p.readers = Param::Readers::products;
        return p.hold_in_blocks(std::move(m));
      }
      p.value = bench.on_device(bench.random(DType::bf16, p.shape, p.name));
      p.value_changed();
      p.grad = bench.empty(DType::f32, p.shape);
    });
  }
  static MoeConfig config(const MoeCase& c, bool by_host) {
    MoeConfig config{.gate = {.rule = c.rule,
                              .experts = kExperts,
                              .per_token = kPerToken,
                              .capacity_factor = by_host ? 1e6f : 0.0f,
                              .balance_loss = 0.1f,
                              .z_loss = 0.01f},
                     .hidden = kHidden,
                     .ffn = 24,
                     .activation = c.is_gated ? Activation::silu : Activation::relu,
                     .is_gated = c.is_gated};
    config.shared.hidden = kHidden, config.shared.ffn = c.shared_ffn;
    config.has_shared_gate = c.has_shared_gate;
    return config;
  }
  static Pass pass(int64_t count) { return {.num_tokens = count, .is_training = true, .loss_scale = 0.5f}; }

  Moe moe;
};

TEST_P(CudaMoeTest, TokensHaveTheBitsTheyHaveWhereTheHostOrdersRows) {
  Workbench bench(1, Device::cuda);
  Context context{cuda_kernels(), bench.stream};
  CudaMoe on_device(bench, GetParam(), false), on_host(bench, GetParam(), true);
  const Tensor x = bench.on_device(bench.random(DType::bf16, {kTokens, kHidden}, "x"));
  const auto rows_of = [&](CudaMoe& layer, int64_t first, int64_t count) {
    return bench.values(layer.moe(Var{x.slice_rows(first, count), &context}, CudaMoe::pass(count)).value);
  };
  const std::vector<double> all = rows_of(on_host, 0, 7);
  const auto expected = [&](int64_t first, int64_t count) {
    return std::vector(all.begin() + first * kHidden, all.begin() + (first + count) * kHidden);
  };
  for (int64_t first = 0; first < 7; ++first) EXPECT_EQ(rows_of(on_device, first, 1), expected(first, 1)) << first;
  EXPECT_EQ(rows_of(on_device, 1, 4), expected(1, 4)) << "8 copies, as many as experts";
  EXPECT_EQ(rows_of(on_device, 10, 30), rows_of(on_host, 10, 30)) << "8 copies of an expert in the mean";
  EXPECT_EQ(rows_of(on_device, 0, kTokens), rows_of(on_host, 0, kTokens)) << "tiles, or of blocks the host again";
}

// The host gets to know the choice while the device goes on, in time for a backward pass; and again where a layer is
// used anew before.
TEST_P(CudaMoeTest, GradientsHaveTheBitsTheyHaveWhereTheHostOrdersRows) {
  if (GetParam().blocks) GTEST_SKIP() << "blocks are not trained";
  const Kernels kernels = counted_kernels();
  std::vector<std::vector<double>> results[2];
  for (const bool by_host : {false, true}) {
    Workbench bench(1, Device::cuda);
    Context context{kernels, bench.stream};
    num_orders = 0;
    CudaMoe layer(bench, GetParam(), by_host);
    for (const int64_t count : {int64_t(3), kTokens}) {
      Tape tape;
      context.tape = &tape;
      const auto input = [&](const char* name) {
        return bench.on_device(bench.random(DType::bf16, {count, kHidden}, name));
      };
      const Var x = tape.leaf(context, input("x"));
      const Var y = layer.moe(layer.moe(x, CudaMoe::pass(count)), CudaMoe::pass(count));
      tape.backward(y, input("dy"));
      tape.backward_weights();
      context.tape = nullptr;
      results[by_host].push_back(bench.values(y.value));
      results[by_host].push_back(bench.values(tape.grad(x)));
      layer.moe.each_param([&](Param& p) { results[by_host].push_back(bench.values(p.grad)); });
    }
    EXPECT_EQ(num_orders, by_host ? 0 : GetParam().has_shared_gate ? 8 : 4);
  }
  ASSERT_EQ(results[0].size(), results[1].size());
  for (size_t i = 0; i < results[0].size(); ++i) EXPECT_EQ(results[0][i], results[1][i]) << i;
}

}  // namespace
}  // namespace weft
