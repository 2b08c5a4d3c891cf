// Grouped products on tensor cores: of groups of any number of rows they are the reference's, in both directions and
// with every epilogue, and so are the gradients of weights; one launch makes all groups.
#include "cuda/emulation.h"
#include "kernels/workbench.h"
#include "weft/kernels/cuda/group_rows.h"
#include "weft/kernels/cuda/tiles_shape.h"

namespace weft {
namespace {

using Kind = Epilogue::Kind;
using Results = std::vector<std::vector<double>>;

struct TilesCase {
  const char* name;
  DType dtype;
  std::vector<int64_t> starts;
  int64_t n, k;
  Kind kind = Kind::none;
  bool is_backward = false, accumulates = false, is_wide = false, has_bias = false;
  int64_t rows() const { return starts.back(); }
  int64_t groups() const { return int64_t(starts.size()) - 1; }
};

// All that a product reads, of f64 for the reference and of the case's dtype for the device.
class CudaMatmulTilesTest : public testing::TestWithParam<TilesCase> {
 protected:
  Workbench bench_{1, Device::cuda};

  // What a table makes of the case: y and what the epilogue writes.
  Results results(Workbench& bench, const Kernels& kernels, DType dtype) {
    const TilesCase& c = GetParam();
    const auto named = [&](const char* name, Shape shape) {
      const Tensor rounded = bench.random(c.dtype, shape, name);
      return bench.on_device(bench.of(dtype, shape, bench.values(rounded)));
    };
    const Shape of_y{c.rows(), c.n};
    const Tensor y = c.accumulates ? named("y", of_y) : bench.empty(c.is_wide ? DType::f32 : dtype, of_y);
    GroupedMatmulArgs args{.y = y,
                           .a = named("a", {c.rows(), c.k}),
                           .b = named("b", c.is_backward ? Shape{c.groups(), c.k, c.n} : Shape{c.groups(), c.n, c.k}),
                           .transpose_b = !c.is_backward,
                           .accumulate = c.accumulates,
                           .starts = c.starts,
                           .epilogue = {.kind = c.kind, .f = Activation::silu}};
    Epilogue& e = args.epilogue;
    if (c.has_bias) e.bias = named("bias", {c.groups(), c.n});
    if (c.kind == Kind::activate || c.kind == Kind::gated) e.act = bench.empty(dtype, of_y);
    if (c.kind == Kind::gated || c.kind == Kind::gated_backward) e.gate = named("gate", of_y);
    if (c.kind == Kind::gated_backward) e.up = named("up", of_y), e.dgate = bench.empty(dtype, of_y);
    if (c.kind == Kind::activate_backward) e.pre = named("pre", of_y);
    kernels.grouped_matmuls(bench.stream, {&args, 1});
    Results all;
    for (const Tensor& t : {args.y, e.act, e.dgate})
      if (t) all.push_back(bench.values(t));
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(
    All, CudaMatmulTilesTest,
    testing::Values(
        TilesCase{"a_group_of_more_than_a_tile", DType::bf16, {0, 70}, 136, 104},
        TilesCase{"groups_that_end_within_tiles", DType::f16, {0, 17, 17, 90, 155}, 40, 72},
        TilesCase{"groups_of_large_tiles", DType::bf16, {0, 97, 250}, 144, 40},
        TilesCase{"one_that_is_short", DType::bf16, {0, 8, 64}, 8, 8},
        TilesCase{"into_f32", DType::bf16, {0, 40}, 64, 64, Kind::none, false, false, true},
        TilesCase{"activated", DType::bf16, {0, 20, 45}, 24, 48, Kind::activate, false, false, false, true},
        TilesCase{"gated", DType::f16, {0, 20, 45}, 24, 48, Kind::gated},
        TilesCase{"backward", DType::bf16, {0, 33, 33, 70}, 136, 72, Kind::none, true},
        TilesCase{"backward_of_large_tiles", DType::f16, {0, 130}, 136, 40, Kind::none, true},
        TilesCase{"backward_added", DType::bf16, {0, 33, 70}, 40, 72, Kind::none, true, true},
        TilesCase{"backward_of_activated", DType::bf16, {0, 33, 70}, 40, 72, Kind::activate_backward, true},
        TilesCase{"backward_of_gated", DType::bf16, {0, 33, 70}, 40, 72, Kind::gated_backward, true}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaMatmulTilesTest, EqualTheReference) {
  const TilesCase& c = GetParam();
  const int64_t products = num_products(0);
  const Results got = results(bench_, cuda_kernels(), c.dtype);
  EXPECT_EQ(num_products(0), products) << "none of these is cuBLASLt's";
  Workbench host;
  const Results want = results(host, reference_kernels(), DType::f64);
  const double digit = c.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    for (size_t j = 0; j < want[i].size(); ++j)
      ASSERT_NEAR(got[i][j], want[i][j], 1e-4 * double(c.k) + digit * std::abs(want[i][j])) << i << ' ' << j;
}

class CudaMatmulBatchTest : public CudaMatmulTilesTest {};
INSTANTIATE_TEST_SUITE_P(
    All, CudaMatmulBatchTest,
    testing::Values(TilesCase{"of_one_row", DType::bf16, {0, 1, 2, 3}, 24, 16, Kind::none, true},
                    TilesCase{"of_many", DType::f16, {0, 20, 40}, 40, 72, Kind::none, true},
                    TilesCase{"of_f32", DType::f32, {0, 3, 6}, 8, 12, Kind::none, true},
                    TilesCase{"into_f32", DType::bf16, {0, 2, 4}, 16, 8, Kind::none, true, false, true}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaMatmulBatchTest, GroupsOfAsManyRowsAreOneProduct) {
  const TilesCase& c = GetParam();
  const int64_t products = num_products(0);
  const Results got = results(bench_, cuda_kernels(), c.dtype);
  if (kIsEmulated) EXPECT_EQ(num_products(0), products + 1);
  Workbench host;
  expect_near("y", got[0], results(host, reference_kernels(), DType::f64)[0], c.dtype == DType::f32 ? 1e-5 : 0.1);
}

// Whatever else its group has, and whatever the size of tiles.
TEST(CudaMatmulTiles, ARowHasTheBitsItHasInAnotherGroup) {
  constexpr int64_t kRows = 140, kN = 48, kK = 328;
  Workbench bench(1, Device::cuda);
  const Tensor a = bench.on_device(bench.random(DType::bf16, {kRows, kK}, "a"));
  const Tensor b = bench.on_device(bench.random(DType::bf16, {1, kN, kK}, "b"));
  const auto product = [&](int64_t first, int64_t count) {
    const std::vector<int64_t> starts = {0, count};
    const GroupedMatmulArgs args{.y = bench.empty(DType::bf16, {count, kN}),
                                 .a = a.slice_rows(first, count),
                                 .b = b,
                                 .transpose_b = true,
                                 .starts = starts};
    cuda_kernels().grouped_matmuls(bench.stream, {&args, 1});
    return bench.values(args.y);
  };
  const std::vector<double> all = product(0, kRows), some = product(50, 30);
  EXPECT_EQ(some, std::vector(all.begin() + 50 * kN, all.begin() + 80 * kN));
}

TEST(CudaMatmulTiles, GateAndUpAreOfOneCall) {
  const std::vector<int64_t> starts = {0, 30, 71};
  constexpr int64_t kN = 40, kK = 64;
  const auto act_of = [&](Workbench& bench, const Kernels& kernels, DType type) {
    const auto named = [&](const char* name, Shape shape) {
      return bench.on_device(bench.of(type, shape, bench.values(bench.random(DType::bf16, shape, name))));
    };
    GroupedMatmulArgs gate{.y = bench.empty(type, {71, kN}),
                           .a = named("a", {71, kK}),
                           .b = named("gate", {2, kN, kK}),
                           .transpose_b = true,
                           .starts = starts};
    GroupedMatmulArgs up = gate;
    up.y = bench.empty(type, {71, kN}), up.b = named("up", {2, kN, kK});
    up.epilogue = {.kind = Kind::gated, .f = Activation::silu, .act = bench.empty(type, {71, kN}), .gate = gate.y};
    kernels.grouped_matmuls(bench.stream, std::array{gate, up});
    return bench.values(up.epilogue.act);
  };
  Workbench device(1, Device::cuda), host;
  const std::vector<double> got = act_of(device, cuda_kernels(), DType::bf16),
                            want = act_of(host, reference_kernels(), DType::f64);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 0.05 + 0.02 * std::abs(want[i])) << i;
}

struct GradientsCase {
  const char* name;
  DType dtype, y_type;
  std::vector<int64_t> starts;
  int64_t m, n;
  bool accumulates;
  bool is_tiled = true;
};
class CudaGroupedGradientsTest : public testing::TestWithParam<GradientsCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, CudaGroupedGradientsTest,
    testing::Values(GradientsCase{"into_f32", DType::bf16, DType::f32, {0, 40, 40, 47}, 136, 40, false},
                    GradientsCase{"added_to_f32", DType::bf16, DType::f32, {0, 0, 70, 71}, 24, 200, true},
                    GradientsCase{"into_16_bits", DType::f16, DType::f16, {0, 33, 80, 80}, 72, 72, false},
                    GradientsCase{"added_to_16_bits", DType::bf16, DType::bf16, {0, 5, 5}, 40, 8, true},
                    GradientsCase{"of_no_rows", DType::bf16, DType::f32, {0, 0, 0}, 24, 16, false},
                    GradientsCase{"of_no_rows_added", DType::bf16, DType::f32, {0, 0, 0}, 24, 16, true},
                    GradientsCase{"of_f32", DType::f32, DType::f32, {0, 9, 9, 21}, 24, 16, false, false},
                    GradientsCase{
                        "of_no_whole_vectors", DType::bf16, DType::f32, {0, 9, 9, 21}, 27, 16, true, false}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaGroupedGradientsTest, EqualTheReference) {
  const GradientsCase& c = GetParam();
  const int64_t groups = int64_t(c.starts.size()) - 1, rows = c.starts.back();
  const auto gradients = [&](Workbench& bench, const Kernels& kernels, DType dtype, DType y_type) {
    const auto named = [&](const char* name, Shape shape, DType rounded, DType type) {
      return bench.on_device(bench.of(type, shape, bench.values(bench.random(rounded, shape, name))));
    };
    const GroupedGradientArgs args{.y = named("y", {groups, c.m, c.n}, c.y_type, y_type),
                                   .a = named("a", {rows, c.m}, c.dtype, dtype),
                                   .b = named("b", {rows, c.n}, c.dtype, dtype),
                                   .accumulate = c.accumulates,
                                   .starts = c.starts};
    kernels.grouped_gradients(bench.stream, args);
    return bench.values(args.y);
  };
  Workbench device(1, Device::cuda), host;
  const int64_t products = num_products(0);
  const std::vector<double> got = gradients(device, cuda_kernels(), c.dtype, c.y_type);
  if (kIsEmulated) EXPECT_EQ(num_products(0) == products, c.is_tiled);
  const std::vector<double> want = gradients(host, reference_kernels(), DType::f64, DType::f64);
  const double digit = c.y_type == DType::bf16 ? 0x1p-8 : c.y_type == DType::f16 ? 0x1p-11 : 1e-5;
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-4 + digit * std::abs(want[i])) << "element " << i;
}

TEST(CudaGroupedGradients, RefuseOtherShapes) {
  Workbench bench(1, Device::cuda);
  const std::vector<int64_t> starts = {0, 2, 6};
  const auto gradients = [&](Shape y, Shape a, Shape b, std::span<const int64_t> cuts) {
    cuda_kernels().grouped_gradients(bench.stream, {.y = bench.empty(DType::f32, y),
                                                    .a = bench.empty(DType::bf16, a),
                                                    .b = bench.empty(DType::bf16, b),
                                                    .starts = cuts});
  };
  EXPECT_NO_THROW(gradients({2, 8, 16}, {6, 8}, {6, 16}, starts));
  EXPECT_THROW(gradients({3, 8, 16}, {6, 8}, {6, 16}, starts), Error);
  EXPECT_THROW(gradients({2, 16, 8}, {6, 8}, {6, 16}, starts), Error);
  EXPECT_THROW(gradients({2, 8, 16}, {7, 8}, {6, 16}, starts), Error);
  EXPECT_THROW(gradients({2, 8, 16}, {7, 8}, {7, 16}, starts), Error);
  EXPECT_THROW(gradients({2, 8, 16}, {6, 8}, {6, 16}, {}), Error);
}

TEST(GroupRowsTest, GroupsAreCut) {
  const std::vector<int64_t> starts = {0, 3, 3, 13};
  const auto text = [](const std::vector<cuda::GroupRows>& all) {
    std::string s;
    for (const cuda::GroupRows& g : all) s += fmt::format("{}+{} of {}; ", g.first, g.count, g.group);
    return s;
  };
  EXPECT_EQ(text(cuda::cut_groups(starts, 4)), "0+3 of 0; 3+4 of 2; 7+4 of 2; 11+2 of 2; ");
  EXPECT_EQ(text(cuda::whole_groups(starts, true)), "0+3 of 0; 3+0 of 1; 3+10 of 2; ");
  EXPECT_EQ(text(cuda::whole_groups(starts, false)), "0+3 of 0; 3+10 of 2; ");
  EXPECT_EQ(cuda::mean_rows(starts), 7);
  EXPECT_EQ(cuda::mean_rows(std::vector<int64_t>{0, 0}), 0);
}

TEST(TilesShapeTest, LargeProductsAreMadeOneByOne) {
  EXPECT_TRUE(cuda::gain_in_tiles(512, 768, 2048, 90)) << "experts of Qwen3 30B";
  EXPECT_FALSE(cuda::gain_in_tiles(4096, 14336, 4096, 90)) << "of Mixtral";
  EXPECT_FALSE(cuda::gain_in_tiles(4096, 14336, 4096, 80));
  EXPECT_TRUE(cuda::gain_in_tiles(1024, 2048, 2048, 80));
  EXPECT_FALSE(cuda::gain_in_tiles(1024, 2048, 2048, 90));
  EXPECT_EQ(cuda::tile_rows(20), 64);
  EXPECT_EQ(cuda::tile_rows(512), 128);
}

}  // namespace
}  // namespace weft
