// Products with weights in quantised blocks: against what rounded activations and decoded weights give in double,
// against the reference, the same bits for a row whatever is computed beside it, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "random_blocks.h"
#include "weft/kernels/block_decode.h"
#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/matmul_blocks.h"

namespace weft {
namespace {

using cpu::BlockIsa;

std::vector<BlockIsa> isas_here() {
  std::vector<BlockIsa> all;
  for (const BlockIsa isa : {BlockIsa::avx2, BlockIsa::avx2_vnni, BlockIsa::avx512, BlockIsa::avx512_vnni,
                             BlockIsa::avx512_bf16, BlockIsa::amx})
    if (cpu::can_use(isa)) all.push_back(isa);
  return all;
}

bool rounds_weights(BlockIsa isa, BlockType type, DType of_a) {
  return cpu::block_kernels(isa, type, of_a).math == cpu::BlockMath::pairs;
}

// What a product must give, with activations rounded as cpu rounds them or left alone, and how far it may be off.
struct ExpectedProduct {
  std::vector<double> rounded, plain, magnitude, rounding;

  ExpectedProduct(const std::vector<double>& a, const BlockMatrix& b, const BlockProduct& s,
                  bool rounds_weights = false) {
    // A row shares a scale where all blocks of a weight's row do.
    RoundedActivations used(a, s, b.type == BlockType::int8 ? s.skip + s.k : 32);
    if (!rounds_activations(b.type)) used.values = a, used.errors.assign(a.size(), 0);
    std::vector<float> values(static_cast<size_t>(s.k));
    for (auto* v : {&rounded, &plain, &magnitude, &rounding}) v->resize(size_t(s.m * s.n));
    for (int64_t col = 0; col < s.n; ++col) {
      decode_row(b, col, values.data());
      for (int64_t row = 0; row < s.m; ++row)
        for (int64_t k = 0; k < s.k; ++k) {
          const auto at = size_t(row * s.n + col), i = size_t(row * s.k + k);
          const double w = double(values[size_t(k)]);
          const double used_w = rounds_weights ? double(float(BFloat16(values[size_t(k)]))) : w;
          rounded[at] += used.values[i] * used_w, plain[at] += a[i] * w;
          magnitude[at] += std::abs(used.values[i] * w);
          rounding[at] += used.errors[i] * std::abs(w) + std::abs(used.values[i] * (used_w - w));
        }
    }
  }
};

class MatmulBlocks : public testing::TestWithParam<std::tuple<BlockType, BlockProduct, DType>> {};
std::string case_name(const testing::TestParamInfo<MatmulBlocks::ParamType>& test) {
  return std::apply([](auto&&... of) { return name_of(of...); }, test.param);
}

constexpr BlockProduct kProducts[] = {{1, 70, 256, 0},  {2, 33, 512, 0}, {5, 31, 768, 0}, {33, 41, 1280, 0},
                                      {3, 9, 40, 0},    {4, 17, 300, 0}, {9, 40, 96, 0},  {1, 32, 480, 17},
                                      {33, 7, 260, 31}, {8, 5, 1, 5}};
INSTANTIATE_TEST_SUITE_P(All, MatmulBlocks,
                         testing::Combine(testing::ValuesIn(kBlockTypes), testing::ValuesIn(kProducts),
                                          testing::Values(DType::f32, DType::bf16)),
                         case_name);

TEST_P(MatmulBlocks, EqualsRoundedActivationsTimesDecodedWeights) {
  const auto& [type, s, dtype] = GetParam();
  Workbench bench(2);
  const BlockMatrix b = random_blocks(bench, type, s.n, s.k, s.skip);
  const Tensor a = bench.random(dtype, {s.m, s.k}, "a");
  const ExpectedProduct with_floats(bench.values(a), b, s), with_pairs(bench.values(a), b, s, true);
  const double least = type == BlockType::w4_g32 || type == BlockType::w4_g128 ? 0.1 : 1e-3;
  for (const BlockIsa isa : isas_here()) {
    const ExpectedProduct& expected = rounds_weights(isa, type, dtype) ? with_pairs : with_floats;
    const Tensor y = bench.empty(DType::f32, {s.m, s.n});
    const MatmulArgs product{.y = y, .a = a, .transpose_b = true, .blocks_b = b};
    cpu::matmul_blocks_with(bench.stream, {&product, 1}, isa);
    for (size_t i = 0; i < expected.plain.size(); ++i) {
      const auto got = double(y.data<float>()[i]);
      // Minima cancel what scales give: what is added up may be a few times the terms, and more where these are 0.
      ASSERT_NEAR(got, expected.rounded[i], 1e-6 * (least + 20 * expected.magnitude[i])) << i << ", isa " << int(isa);
      ASSERT_NEAR(got, expected.plain[i], expected.rounding[i] + 1e-5 * (least + expected.magnitude[i])) << i;
    }
  }
}

TEST_P(MatmulBlocks, ReferenceDecodes) {
  const auto& [type, s, dtype] = GetParam();
  Workbench bench;
  const BlockMatrix b = random_blocks(bench, type, s.n, s.k, s.skip);
  const Tensor a = bench.random(dtype, {s.m, s.k}, "a"), y = bench.empty(DType::f32, {s.m, s.n});
  reference_kernels().matmul(bench.stream, {.y = y, .a = a, .transpose_b = true, .blocks_b = b});
  const ExpectedProduct expected(bench.values(a), b, s);
  for (size_t i = 0; i < expected.plain.size(); ++i)
    ASSERT_NEAR(double(y.data<float>()[i]), expected.plain[i], 1e-6 * (1e-3 + expected.magnitude[i])) << i;
}

// Of types whose codes stand for floats, on machines that have the products.
TEST(MatmulBlocksTest, PairsOfBf16AreMultipliedWhereTheMachineCan) {
  for (const BlockType type : kBlockTypes) {
    const bool are_floats = type == BlockType::fp8 || type == BlockType::nf4;
    EXPECT_EQ(rounds_weights(cpu::BlockIsa::avx512_vnni, type, DType::bf16), false);
    if (cpu::best_block_isa() < cpu::BlockIsa::avx512_bf16) continue;
    EXPECT_EQ(rounds_weights(cpu::BlockIsa::avx512_bf16, type, DType::bf16), are_floats) << name_of(type);
    EXPECT_FALSE(rounds_weights(cpu::BlockIsa::avx512_bf16, type, DType::f32)) << name_of(type);
  }
}

class MatmulBlocksOfType : public testing::TestWithParam<BlockType> {
 protected:
  Workbench bench{2};
};
INSTANTIATE_TEST_SUITE_P(All, MatmulBlocksOfType, testing::ValuesIn(kBlockTypes),
                         [](const auto& test) { return std::string(name_of(test.param)); });

// A column that another rank holds does not count, whatever stands there.
TEST_P(MatmulBlocksOfType, CutColumnsAddUpToTheWhole) {
  constexpr int64_t kRows = 6, kCols = 512, kAt = 300;
  const BlockMatrix whole = random_blocks(bench, GetParam(), kRows, kCols, 0);
  const int64_t block = block_elements(GetParam()), first = kAt / block * block;
  std::vector<float> values(kCols), left(kAt), right(kCols - kAt);
  for (int64_t row = 0; row < kRows; ++row) {
    const auto part = [&](int64_t from, int64_t cols, int64_t skip) {
      BlockMatrix b{.blocks = {}, .type = GetParam(), .rows = 1, .cols = cols, .skip = skip};
      b.blocks = whole.blocks.slice_flat(row * whole.row_bytes() + from / block * block_bytes(GetParam()),
                                         {1, b.row_bytes()});
      return b;
    };
    decode_row(whole, row, values.data());
    decode_row(part(0, kAt, 0), 0, left.data());
    decode_row(part(first, kCols - kAt, kAt - first), 0, right.data());
    EXPECT_TRUE(std::equal(left.begin(), left.end(), values.begin()));
    EXPECT_TRUE(std::equal(right.begin(), right.end(), values.begin() + kAt));
  }
}

TEST_P(MatmulBlocksOfType, RowsHaveTheSameBitsWhateverIsBesideThem) {
  constexpr int64_t kM = 530, kN = 67, kK = 800;
  const BlockMatrix b = random_blocks(bench, GetParam(), kN, kK, 3);
  const Tensor wide = bench.random(DType::f32, {kM, kK}, "a"), narrow = bench.random(DType::bf16, {kM, kK}, "a");
  const Tensor all = bench.empty(DType::f32, {kM, kN});
  for (const BlockIsa isa : isas_here()) {
    const Tensor& a = rounds_weights(isa, GetParam(), DType::bf16) ? narrow : wide;
    const auto multiply = [&](const Tensor& y, const Tensor& rows, const BlockMatrix& blocks, int threads) {
      Workbench other(threads);
      const MatmulArgs product{.y = y, .a = rows, .transpose_b = true, .blocks_b = blocks};
      cpu::matmul_blocks_with(other.stream, {&product, 1}, isa);
    };
    multiply(all, a, b, 2);
    for (const auto& [m, threads] :
         {std::pair{1, 1}, {1, 3}, {2, 2}, {5, 1}, {8, 2}, {9, 3}, {33, 1}, {48, 2}, {49, 1}}) {
      for (const int64_t first : {int64_t(0), int64_t(7), kM - m}) {
        const Tensor y = bench.empty(DType::f32, {m, kN});
        multiply(y, a.slice_rows(first, m), b, threads);
        ASSERT_EQ(std::memcmp(y.raw(), all.slice_rows(first, m).raw(), y.bytes()), 0)
            << m << " rows from " << first << ", " << threads << " threads, isa " << int(isa);
      }
    }
    // Columns [20, 61) alone.
    BlockMatrix some = b;
    some.rows = 41, some.blocks = b.blocks.slice_rows(20, some.rows);
    for (const int64_t m : {1, 6, 40, 70}) {
      const Tensor y = bench.empty(DType::f32, {m, some.rows});
      multiply(y, a.slice_rows(0, m), some, 2);
      for (int64_t row = 0; row < m; ++row)
        ASSERT_EQ(
            std::memcmp(y.data<float>() + row * some.rows, all.data<float>() + row * kN + 20, size_t(some.rows) * 4),
            0)
            << "row " << row << " of " << m;
    }
  }
}

TEST_P(MatmulBlocksOfType, EpiloguesFinishTheProduct) {
  constexpr int64_t kM = 11, kN = 45, kK = 288;
  const BlockMatrix b = random_blocks(bench, GetParam(), kN, kK, 0);
  const Tensor a = bench.random(DType::bf16, {kM, kK}, "a"), bias = bench.random(DType::bf16, {kN}, "bias");
  const Tensor gate = bench.random(DType::bf16, {kM, kN}, "gate");
  for (const int64_t m : {int64_t(2), kM}) {
    const auto rows = [&](const Tensor& t) { return t.slice_rows(0, m); };
    const Tensor plain = bench.empty(DType::f32, {m, kN}), y = bench.empty(DType::f32, {m, kN});
    const Tensor act = bench.empty(DType::f32, {m, kN});
    MatmulArgs args{.y = plain, .a = rows(a), .transpose_b = true, .blocks_b = b};
    cpu::matmul(bench.stream, args);
    const std::vector<double> product = bench.values(plain), biases = bench.values(bias),
                              gates = bench.values(rows(gate));
    const auto expect_close = [](const Tensor& is, size_t i, double want) {
      ASSERT_NEAR(double(is.data<float>()[i]), want, 2e-6 * (1 + std::abs(want))) << i;
    };
    const auto silu = [](double x) { return x / (1 + std::exp(-x)); };

    args.y = y;
    args.epilogue = {.kind = Epilogue::Kind::gated, .bias = bias, .act = act, .gate = rows(gate)};
    cpu::matmul(bench.stream, args);
    for (size_t i = 0; i < product.size(); ++i) {
      const double sum = product[i] + biases[i % kN];
      expect_close(y, i, sum);
      expect_close(act, i, silu(gates[i]) * sum);
    }
    args.epilogue = {.kind = Epilogue::Kind::activate, .act = act};
    cpu::matmul(bench.stream, args);
    for (size_t i = 0; i < product.size(); ++i) expect_close(act, i, silu(product[i]));
    args.epilogue = {};
    args.accumulate = true;
    cpu::matmul(bench.stream, args);
    for (size_t i = 0; i < product.size(); ++i) expect_close(y, i, 2 * product[i]);
  }
}

TEST_P(MatmulBlocksOfType, ZerosGiveZerosAndWhatIsNoNumberStaysInItsRow) {
  constexpr int64_t kN = 34, kK = 512;
  const BlockMatrix b = random_blocks(bench, GetParam(), kN, kK, 0);
  for (const int64_t m : {5, 20}) {
    const Tensor a = bench.random(DType::f32, {m, kK}, "a"), y = bench.empty(DType::f32, {m, kN});
    std::fill_n(a.data<float>(), kK, 0.0f);
    std::fill_n(a.data<float>() + kK, kK, 1e-38f);
    a.data<float>()[2 * kK + 77] = std::numeric_limits<float>::quiet_NaN();
    a.data<float>()[3 * kK + 200] = -std::numeric_limits<float>::infinity();
    cpu::matmul(bench.stream, {.y = y, .a = a, .transpose_b = true, .blocks_b = b});
    for (int64_t i = 0; i < m * kN; ++i) {
      const float x = y.data<float>()[i];
      if (i < 2 * kN)
        ASSERT_LE(std::abs(x), i < kN || rounds_activations(GetParam()) ? 0 : 1e-34f);
      else
        ASSERT_EQ(std::isfinite(x), i >= 4 * kN) << "row " << i / kN;
    }
  }
}

TEST_P(MatmulBlocksOfType, NeedNoMemoryOnceWarm) {
  const BlockMatrix b = random_blocks(bench, GetParam(), 64, 256, 0);
  const Tensor a = bench.random(DType::bf16, {40, 256}, "a"), y = bench.empty(DType::bf16, {40, 64});
  const MatmulArgs args{.y = y, .a = a, .transpose_b = true, .blocks_b = b};
  cpu::matmul(bench.stream, args);
  const int64_t calls = bench.allocator.stats().system_calls, scratch = bench.stream.scratch_bytes();
  cpu::matmul(bench.stream, args);
  EXPECT_EQ(bench.allocator.stats().system_calls, calls);
  EXPECT_EQ(bench.stream.scratch_bytes(), scratch);
}

TEST_P(MatmulBlocksOfType, MetaCountsBlocks) {
  Workbench meta_bench(1, Device::meta);
  BlockMatrix b{.blocks = {}, .type = GetParam(), .rows = 6, .cols = 512};
  b.blocks = meta_bench.empty(DType::u8, {b.rows, b.row_bytes()});
  const Tensor a = meta_bench.empty(DType::bf16, {8, 512}), y = meta_bench.empty(DType::f32, {8, 6});
  meta_kernels().matmul(meta_bench.stream, {.y = y, .a = a, .transpose_b = true, .blocks_b = b});
  EXPECT_EQ(meta_bench.stream.cost.flops, 2.0 * 8 * 6 * 512);
  EXPECT_EQ(meta_bench.stream.cost.bytes,
            4.0 * 8 * 6 + 2.0 * 8 * 512 + double(6 * 512 / block_elements(GetParam()) * block_bytes(GetParam())));
}

TEST_P(MatmulBlocksOfType, AreRefusedWhereTheyDoNotFit) {
  const BlockMatrix good = random_blocks(bench, GetParam(), 10, 256, 0);
  const Tensor a = bench.random(DType::f32, {3, 256}, "a"), y = bench.empty(DType::f32, {3, 10});
  const auto is_refused = [&](auto&& change) {
    MatmulArgs args{.y = y, .a = a, .transpose_b = true, .blocks_b = good};
    change(args);
    EXPECT_THROW(meta_kernels().matmul(bench.stream, args), Error);
    EXPECT_THROW(reference_kernels().matmul(bench.stream, args), Error);
    EXPECT_THROW(cpu_kernels().matmul(bench.stream, args), Error);
  };
  is_refused([](MatmulArgs& args) { args.transpose_b = false; });
  is_refused([](MatmulArgs& args) { args.blocks_b.rows = 9; });
  is_refused([](MatmulArgs& args) { args.blocks_b.cols = 255; });
  is_refused([](MatmulArgs& args) { args.blocks_b.skip = block_elements(args.blocks_b.type); });
  is_refused([](MatmulArgs& args) { args.blocks_b.skip = -1; });
  is_refused([](MatmulArgs& args) { args.blocks_b.blocks = args.blocks_b.blocks.slice_rows(0, 9); });
  is_refused([&](MatmulArgs& args) { args.packed_b = good.blocks; });
  is_refused([&](MatmulArgs& args) { args.blocks_b.blocks = a; });
  const Tensor wide = bench.random(DType::f64, {3, 256}, "a");
  EXPECT_THROW(cpu::matmul(bench.stream, {.y = y, .a = wide, .transpose_b = true, .blocks_b = good}), Error);
}

}  // namespace
}  // namespace weft
