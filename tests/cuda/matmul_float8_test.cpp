// Products of many rows with a weight in fp8 by way of codes: which cards do it how, the shapes that the library
// gets, what rounded activations give in double, and what is left to the way of decoded weights.
#include <limits>

#include "cuda/emulation.h"
#include "kernels/random_blocks.h"
#include "weft/kernels/block_decode.h"
#include "weft/kernels/cuda/float8_way.h"

namespace weft {
namespace {

using cuda::Float8Way;

TEST(Float8WayTest, FollowsCardAndShape) {
  struct Row {
    int capability;
    BlockType type;
    int64_t rows;
    bool has_row_scales, transpose_a;
    Float8Way way;
  };
  constexpr auto kFp8 = BlockType::fp8;
  for (const Row& r :
       {Row{90, kFp8, 4096, false, false, Float8Way::block_scales},
        Row{90, kFp8, 4096, true, false, Float8Way::block_scales},
        Row{90, kFp8, 4104, true, false, Float8Way::decoded},  // no multiple of 16
        Row{90, kFp8, 4096, true, true, Float8Way::decoded},
        Row{90, BlockType::int8, 4096, true, false, Float8Way::decoded},
        Row{80, kFp8, 4096, true, false, Float8Way::decoded}, Row{86, kFp8, 4096, true, false, Float8Way::decoded},
        Row{89, kFp8, 16, true, false, Float8Way::row_scales}, Row{89, kFp8, 16, false, false, Float8Way::decoded},
        Row{100, kFp8, 16, true, false, Float8Way::row_scales}, Row{100, kFp8, 16, false, false, Float8Way::decoded},
        Row{120, kFp8, 16, true, false, Float8Way::row_scales}}) {
    const BlockMatrix b{.type = r.type, .has_row_scales = r.has_row_scales, .rows = r.rows, .cols = 40};
    EXPECT_EQ(cuda::float8_way(r.capability, b, r.transpose_a), r.way) << r.capability << ", " << r.rows;
  }
}

TEST(Float8WayTest, ShapesAreWhatTheLibraryTakes) {
  struct Row {
    Float8Way way;
    int64_t m, n, k, skip;
    bool has_more;
    int64_t rows, length, columns, a_scales;
    bool is_in_place;
  };
  constexpr auto kBlocks = Float8Way::block_scales, kRows = Float8Way::row_scales;
  for (const Row& r : {Row{kBlocks, 12, 4096, 4096, 0, false, 12, 4096, 4096, 12 * 32, true},
                       Row{kBlocks, 12, 4096, 4096, 0, true, 12, 4096, 4096, 12 * 32, false},
                       Row{kBlocks, 9, 4096, 4000, 0, false, 12, 4096, 4096, 12 * 32, false},
                       Row{kBlocks, 12, 48, 200, 100, false, 12, 384, 48, 12 * 3, true},  // its rows begin in a block
                       Row{kRows, 12, 48, 200, 0, false, 12, 256, 48, 12, false},
                       Row{kRows, 17, 128256, 8192, 0, false, 20, 8192, 32768, 20, false},  // 256 MiB at once
                       Row{kRows, 17, 1 << 20, int64_t(1) << 28, 0, false, 20, int64_t(1) << 28, 128, 20, false}}) {
    const BlockMatrix b{.type = BlockType::fp8, .rows = r.n, .cols = r.k, .skip = r.skip};
    const cuda::Float8Shape s = cuda::float8_shape(r.way, b, r.m, r.has_more);
    EXPECT_EQ(s.rows, r.rows) << r.m;
    EXPECT_EQ(s.length, r.length) << r.k;
    EXPECT_EQ(s.columns, r.columns) << r.n;
    EXPECT_EQ(s.num_scales(r.way, s.rows), r.a_scales) << r.m;
    EXPECT_EQ(s.is_in_place, r.is_in_place) << r.m;
  }
}

// Weights with a scale to a block, or to a row, off alignment on the device.
BlockMatrix weight(Workbench& bench, const BlockProduct& p, bool has_row_scales, BlockMatrix* on_host) {
  BlockMatrix b = random_blocks(bench, BlockType::fp8, p.n, p.k, p.skip);
  auto* const bytes = static_cast<std::byte*>(b.blocks.raw());
  b.has_row_scales = has_row_scales;
  for (int64_t i = 0; has_row_scales && i < b.rows * b.row_blocks(); ++i)
    std::memcpy(bytes + i * 132, bytes + i / b.row_blocks() * b.row_bytes(), 4);
  *on_host = b;
  b.blocks = bench.empty(DType::u8, {b.blocks.numel() + 1}).slice_flat(1, b.blocks.shape());
  bench.stream.copy(b.blocks, on_host->blocks);
  return b;
}

// a as E4M3 leaves it in blocks of `size` of the weight's row.
std::vector<double> rounded_activations(const std::vector<double>& a, const BlockProduct& p, int64_t size) {
  std::vector<double> rounded = a;
  for (int64_t row = 0; row < p.m; ++row)
    for (int64_t begin = 0; begin < p.skip + p.k; begin += size) {
      const auto each = [&](auto&& visit) {
        for (int64_t col = std::max(begin, p.skip); col < std::min(begin + size, p.skip + p.k); ++col)
          visit(rounded[size_t(row * p.k + col - p.skip)]);
      };
      float largest = 0;
      each([&](double x) { largest = std::max(largest, std::abs(float(x))); });
      if (largest == 0) continue;
      const float scale = largest / 448, inverse = 448 / largest;
      each([&](double& x) { x = double(float(Float8E4M3::from(float(x) * inverse))) * double(scale); });
    }
  return rounded;
}

struct Card {
  const char* name;
  int capability;
  bool has_row_scales;
  bool has_codes() const { return capability == 90 || (capability >= 89 && has_row_scales); }
};
class CudaMatmulFloat8 : public testing::TestWithParam<std::tuple<Card, BlockProduct, DType>> {};
std::string float8_case_name(const testing::TestParamInfo<CudaMatmulFloat8::ParamType>& test) {
  const auto& [card, p, dtype] = test.param;
  return fmt::format("{}_{}x{}x{}_skip{}_{}", card.name, p.m, p.n, p.k, p.skip, name_of(dtype));
}
constexpr Card kCards[] = {{"hopper", 90, false},
                           {"ada", 89, true},
                           {"ada_blocks", 89, false},
                           {"blackwell", 100, true},
                           {"ampere", 80, true}};
constexpr BlockProduct kFloat8Products[] = {{12, 32, 256, 0}, {9, 16, 300, 0}, {10, 48, 260, 31}, {16, 16, 1, 127}};
INSTANTIATE_TEST_SUITE_P(All, CudaMatmulFloat8,
                         testing::Combine(testing::ValuesIn(kCards), testing::ValuesIn(kFloat8Products),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)),
                         float8_case_name);

TEST_P(CudaMatmulFloat8, EqualsRoundedActivationsAndDecodedWeights) {
  const auto& [card, p, dtype] = GetParam();
  if (!has_capability(card.capability)) GTEST_SKIP() << "another card";
  const EmulatedCapability capability(card.capability);
  Workbench bench(1, Device::cuda);
  BlockMatrix on_host;
  const BlockMatrix b = weight(bench, p, card.has_row_scales, &on_host);
  const Tensor a = bench.random(dtype, {p.m, p.k}, "a"), y = bench.empty(dtype, {p.m, p.n});
  const MatmulArgs args{.y = y, .a = bench.on_device(a), .transpose_b = true, .blocks_b = b};
  cuda_kernels().matmul(bench.stream, args);
  const std::vector<double> given = bench.values(a), got = bench.values(y);
  const std::vector<double> used =
      card.has_codes() ? rounded_activations(given, p, card.capability == 90 ? 128 : 1 << 20) : given;
  // Weights that are decoded are rounded, and so is y.
  // Hopper's tensor cores keep some 13 bits below the largest of the products of codes that they add at once
  // (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.3.2); the emulator keeps all.
  const double of_f32 = kIsEmulated ? 2e-5 : 0x1p-10;
  const double part = dtype == DType::f32 ? of_f32 : dtype == DType::bf16 ? 0x1p-7 : 0x1p-10;
  std::vector<float> values(size_t(p.k), 0.0f);
  for (int64_t col = 0; col < p.n; ++col) {
    decode_row(on_host, col, values.data());
    for (int64_t row = 0; row < p.m; ++row) {
      double want = 0, magnitude = 0;
      for (int64_t k = 0; k < p.k; ++k) {
        const double term = used[size_t(row * p.k + k)] * double(values[size_t(k)]);
        want += term, magnitude += std::abs(term);
      }
      // The inverse of a scale may round a float between two codes to the other one.
      ASSERT_NEAR(got[size_t(row * p.n + col)], want, part * magnitude + 1e-6) << row << ", " << col;
    }
  }
  const int64_t calls = bench.allocator.stats().system_calls;
  cuda_kernels().matmul(bench.stream, args);
  EXPECT_EQ(bench.allocator.stats().system_calls, calls);
  EXPECT_EQ(bench.values(y), got);
}

class CudaMatmulFloat8OnCard : public testing::TestWithParam<Card> {};
INSTANTIATE_TEST_SUITE_P(All, CudaMatmulFloat8OnCard,
                         testing::Values(Card{"hopper", 90, false}, Card{"ada", 89, true}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaMatmulFloat8OnCard, EpiloguesFinishTheProduct) {
  if (!has_capability(GetParam().capability)) GTEST_SKIP() << "another card";
  const EmulatedCapability capability(GetParam().capability);
  for (const int64_t m : {12, 9}) {
    const BlockProduct p{m, 16, 200, 0};
    Workbench bench(1, Device::cuda);
    BlockMatrix on_host;
    const BlockMatrix b = weight(bench, p, GetParam().has_row_scales, &on_host);
    const auto input = [&](const char* name, Shape shape) {
      return bench.on_device(bench.random(DType::bf16, shape, name));
    };
    const Tensor a = bench.on_device(bench.random(DType::f32, {m, p.k}, "a")), gate = input("gate", {m, p.n}),
                 bias = input("bias", {p.n});
    const Tensor y = bench.empty(DType::f32, {m, p.n}), act = bench.empty(DType::f32, {m, p.n});
    MatmulArgs args{.y = y, .a = a, .transpose_b = true, .blocks_b = b};
    cuda_kernels().matmul(bench.stream, args);
    const std::vector<double> product = bench.values(y), gates = bench.values(gate), biases = bench.values(bias);
    args.epilogue = {.kind = Epilogue::Kind::gated, .bias = bias, .act = act, .gate = gate};
    cuda_kernels().matmul(bench.stream, args);
    std::vector<double> got = bench.values(y), got_act = bench.values(act);
    for (size_t i = 0; i < got.size(); ++i) {
      const double sum = product[i] + biases[i % size_t(p.n)], gated = gates[i] / (1 + std::exp(-gates[i])) * sum;
      ASSERT_NEAR(got[i], sum, 2e-6 * (1 + std::abs(sum))) << i;
      ASSERT_NEAR(got_act[i], gated, 2e-6 * (1 + std::abs(gated))) << i;
    }
    args.epilogue = {.kind = Epilogue::Kind::activate, .f = Activation::relu, .act = act};
    cuda_kernels().matmul(bench.stream, args);
    got = bench.values(y), got_act = bench.values(act);
    EXPECT_EQ(got, product);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got_act[i], std::max(product[i], 0.0)) << i;
    args.epilogue = {}, args.accumulate = true;
    cuda_kernels().matmul(bench.stream, args);
    got = bench.values(y);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], 2 * product[i], 1e-6 * std::abs(product[i])) << i;
  }
}

TEST_P(CudaMatmulFloat8OnCard, WhatIsNoNumberStaysInItsRow) {
  if (!has_capability(GetParam().capability)) GTEST_SKIP() << "another card";
  const EmulatedCapability capability(GetParam().capability);
  const BlockProduct p{9, 16, 512, 0};
  Workbench bench(1, Device::cuda);
  BlockMatrix on_host;
  const BlockMatrix b = weight(bench, p, GetParam().has_row_scales, &on_host);
  const Tensor a = bench.random(DType::f32, {p.m, p.k}, "a"), y = bench.empty(DType::f32, {p.m, p.n});
  std::fill_n(a.data<float>(), p.k, 0.0f);
  std::fill_n(a.data<float>() + p.k, p.k, 1e-38f);
  a.data<float>()[2 * p.k + 77] = std::numeric_limits<float>::quiet_NaN();
  a.data<float>()[3 * p.k + 200] = -std::numeric_limits<float>::infinity();
  cuda_kernels().matmul(bench.stream, {.y = y, .a = bench.on_device(a), .transpose_b = true, .blocks_b = b});
  const std::vector<double> got = bench.values(y);
  for (int64_t i = 0; i < p.m * p.n; ++i) {
    const int64_t row = i / p.n;
    if (row < 2) ASSERT_EQ(got[size_t(i)], 0);
    if (row >= 2) ASSERT_EQ(std::isfinite(got[size_t(i)]), row >= 4) << "row " << row;
  }
}

TEST(CudaMatmulFloat8Test, ALibraryWithoutProductsOfCodesDecodes) {
  if (!kIsEmulated) GTEST_SKIP() << "a card's library has them or not";
  Workbench bench(1, Device::cuda);
  const auto multiply = [&](int64_t k) {
    const BlockProduct p{12, 16, k, 0};
    BlockMatrix on_host;
    const BlockMatrix b = weight(bench, p, false, &on_host);
    const Tensor a = bench.on_device(bench.random(DType::f32, {p.m, p.k}, "a")),
                 y = bench.empty(DType::f32, {12, 16});
    cuda_kernels().matmul(bench.stream, {.y = y, .a = a, .transpose_b = true, .blocks_b = b});
    return bench.values(y);
  };
  const auto multiply_on = [&](const char* name, const char* value, int64_t k) {
    const EmulatorSetting setting(name, value);
    return multiply(k);
  };
  EXPECT_NE(multiply(200), multiply_on("WEFT_EMULATED_CAPABILITY", "80", 200));
  // What a library knows is asked once.
  EXPECT_EQ(multiply_on("WEFT_EMULATED_BLAS_WITHOUT_CODES", "1", 1160),
            multiply_on("WEFT_EMULATED_CAPABILITY", "80", 1160));
}

}  // namespace
}  // namespace weft
