// Products with weights in quantised blocks on a device: against what rounded activations and decoded weights give in
// double, the same bits for a row whatever is computed beside it, and epilogues.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/emulation.h"
#include "kernels/random_blocks.h"
#include "weft/kernels/block_decode.h"
#include "weft/kernels/cuda/matmul_shape.h"

namespace weft {
namespace {

struct Blocks {
  BlockMatrix on_host, on_device;

  Blocks(Workbench& bench, BlockType type, int64_t rows, int64_t cols, int64_t skip)
      : on_host(random_blocks(bench, type, rows, cols, skip)), on_device(on_host) {
    on_device.blocks = bench.empty(DType::u8, {on_host.blocks.numel() + 1}).slice_flat(1, on_host.blocks.shape());
    bench.stream.copy(on_device.blocks, on_host.blocks);
  }
};

class CudaMatmulBlocks : public testing::TestWithParam<std::tuple<BlockType, BlockProduct, DType>> {};
std::string blocks_case_name(const testing::TestParamInfo<CudaMatmulBlocks::ParamType>& test) {
  return std::apply([](auto&&... of) { return name_of(of...); }, test.param);
}
constexpr BlockProduct kProducts[] = {{1, 13, 256, 0}, {2, 5, 2304, 0}, {3, 9, 40, 0},  {8, 6, 300, 0},
                                      {1, 8, 480, 17}, {4, 7, 1, 5},    {9, 10, 96, 0}, {11, 7, 260, 31}};
INSTANTIATE_TEST_SUITE_P(All, CudaMatmulBlocks,
                         testing::Combine(testing::ValuesIn(kBlockTypes), testing::ValuesIn(kProducts),
                                          testing::Values(DType::f32, DType::bf16, DType::f16)),
                         blocks_case_name);

TEST_P(CudaMatmulBlocks, EqualsDecodedWeights) {
  const auto& [type, s, dtype] = GetParam();
  Workbench bench(1, Device::cuda);
  const Blocks b(bench, type, s.n, s.k, s.skip);
  const Tensor a = bench.random(dtype, {s.m, s.k}, "a"), y = bench.empty(DType::f32, {s.m, s.n});
  cuda_kernels().matmul(bench.stream,
                        {.y = y, .a = bench.on_device(a), .transpose_b = true, .blocks_b = b.on_device});
  const bool is_few = s.m <= 8;
  const std::vector<double> given = bench.values(a), got = bench.values(y);
  const std::vector<double> used =
      is_few && rounds_activations(type) ? RoundedActivations(given, s, 32).values : given;
  // Minima cancel what scales give: what is added up may be a few times the terms, and more where these are 0.
  const double least = type == BlockType::w4_g32 || type == BlockType::w4_g128 ? 1e-7 : 1e-9;
  // A card multiplies f32 as TF32, cut off behind 10 bits of both factors; the emulator as it is.
  const double of_f32 = kIsEmulated || is_few ? 2e-5 : 0x1p-9;
  const double part = is_few || dtype == DType::f32 ? of_f32 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  std::vector<float> values(size_t(s.k), 0.0f);
  for (int64_t col = 0; col < s.n; ++col) {
    decode_row(b.on_host, col, values.data());
    for (int64_t row = 0; row < s.m; ++row) {
      double want = 0, magnitude = 0;
      for (int64_t k = 0; k < s.k; ++k) {
        const double term = used[size_t(row * s.k + k)] * double(values[size_t(k)]);
        want += term, magnitude += std::abs(term);
      }
      // Halves have a smallest number.
      ASSERT_NEAR(got[size_t(row * s.n + col)], want, part * magnitude + least + (dtype == DType::f16 ? 1e-6 : 0))
          << row << ", " << col;
    }
  }
}

class CudaMatmulBlocksOfType : public testing::TestWithParam<BlockType> {
 protected:
  Workbench bench{1, Device::cuda};
};
INSTANTIATE_TEST_SUITE_P(All, CudaMatmulBlocksOfType, testing::ValuesIn(kBlockTypes),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(CudaMatmulBlocksOfType, RowsOfATableAreDecoded) {
  const std::vector<int32_t> ids = {4, 9, 4, 0, 12, 5, 4};
  const TableRows part(ids.data(), 4, 13);  // rows 4 to 9 of 13
  for (const auto& [cols, skip] : {std::pair<int64_t, int64_t>{512, 0}, {261, 17}}) {
    const Blocks table(bench, GetParam(), 6, cols, skip);
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor y = bench.empty(dtype, {7, cols});
      cuda_kernels().embedding_of_blocks(bench.stream, y, table.on_device, part);
      const std::vector<double> got = bench.values(y);
      std::vector<float> row(size_t(cols), 0.0f);
      for (size_t t = 0; t < ids.size(); ++t) {
        const int64_t here = part.row(int64_t(t), 6);
        std::ranges::fill(row, 0.0f);
        if (here >= 0) decode_row(table.on_host, here, row.data());
        for (size_t c = 0; c < row.size(); ++c) {
          const double want = double(row[c]);  // a difference of two terms is rounded once or twice
          ASSERT_NEAR(got[t * row.size() + c], want, (dtype == DType::f32 ? 1e-6 : 0x1p-8) * (std::abs(want) + 1))
              << t << ", " << c;
        }
      }
    }
  }
}

TEST_P(CudaMatmulBlocksOfType, RowsHaveTheSameBitsWhateverIsBesideThem) {
  constexpr int64_t kM = 8, kN = 7, kK = 520;
  const Blocks b(bench, GetParam(), kN, kK, 3);
  const Tensor a = bench.random(DType::f32, {kM, kK}, "a");
  const auto multiply = [&](const Tensor& rows) {
    const Tensor y = bench.empty(DType::f32, {rows.dim(0), kN});
    cuda_kernels().matmul(bench.stream,
                          {.y = y, .a = bench.on_device(rows), .transpose_b = true, .blocks_b = b.on_device});
    return bench.values(y);
  };
  const std::vector<double> all = multiply(a);
  for (const auto& [first, m] : {std::pair{0, 1}, {5, 1}, {2, 2}, {1, 3}, {4, 4}, {3, 5}}) {
    const std::vector<double> some = multiply(a.slice_rows(first, m));
    for (size_t i = 0; i < some.size(); ++i) ASSERT_EQ(some[i], all[size_t(first * kN) + i]) << first << ", " << m;
  }
}

// However rows tell of their groups, and whatever else is of one a.
TEST_P(CudaMatmulBlocksOfType, GroupedRowsHaveTheBitsOfEachAlone) {
  constexpr int64_t kRows = 13, kGroups = 3, kN = 7, kK = 300;
  const std::vector<int64_t> starts = {0, 2, 2, 13};
  const Blocks gates(bench, GetParam(), kGroups * kN, kK, 0), ups(bench, BlockType::q6_k, kGroups * kN, kK, 0);
  const Tensor a = bench.on_device(bench.random(DType::bf16, {kRows, kK}, "a"));
  const auto numbers = [&](Shape shape, const std::vector<int32_t>& values) {
    const Tensor t = bench.host.empty(DType::i32, shape);
    std::copy(values.begin(), values.end(), t.data<int32_t>());
    return bench.on_device(t);
  };
  const auto gate_and_up = [&](int64_t rows) {
    GroupedMatmulArgs gate{.y = bench.empty(DType::bf16, {rows, kN}), .a = a, .transpose_b = true};
    gate.blocks_b = gates.on_device;
    GroupedMatmulArgs up = gate;
    up.y = bench.empty(DType::bf16, {rows, kN}), up.blocks_b = ups.on_device;
    up.epilogue = {.kind = Epilogue::Kind::gated, .act = bench.empty(DType::bf16, {rows, kN}), .gate = gate.y};
    return std::array{gate, up};
  };
  std::vector<double> want;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto [gate, up] = gate_and_up(1);
    for (const GroupedMatmulArgs* p : {&gate, &up}) {
      MatmulArgs one{.y = p->y, .a = a.slice_rows(row, 1), .transpose_b = true, .blocks_b = p->blocks_b};
      one.blocks_b.rows = kN;
      one.blocks_b.blocks = one.blocks_b.blocks.slice_rows(row < 2 ? 0 : 2 * kN, kN);
      one.epilogue = p->epilogue;
      cuda_kernels().matmul(bench.stream, one);
    }
    for (const double x : bench.values(up.epilogue.act)) want.push_back(x);
  }
  const auto act_of = [&](auto&& name_groups) {
    auto products = gate_and_up(kRows);
    for (GroupedMatmulArgs& p : products) name_groups(p);
    cuda_kernels().grouped_matmuls(bench.stream, products);
    return bench.values(products[1].epilogue.act);
  };
  EXPECT_EQ(act_of([&](GroupedMatmulArgs& p) { p.starts = starts; }), want);
  const Tensor of_rows = numbers({kRows}, {0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2});
  EXPECT_EQ(act_of([&](GroupedMatmulArgs& p) { p.groups = of_rows; }), want);
  std::vector<int32_t> text = {0, 2, 0, 2, 8, 2, 10, 3, 2};
  text.resize(3 * kRows);
  const Tensor runs = numbers({kRows, 3}, text);
  EXPECT_EQ(act_of([&](GroupedMatmulArgs& p) { p.runs = runs; }), want);
}

// By one kernel for few rows, by cuBLASLt and another for many.
TEST_P(CudaMatmulBlocksOfType, EpiloguesFinishTheProduct) {
  constexpr int64_t kN = 13, kK = 72;
  const Blocks b(bench, GetParam(), kN, kK, 0);
  for (const int64_t m : {2, 9}) {
    const auto input = [&](const char* name, Shape shape) {
      return bench.on_device(bench.random(DType::bf16, shape, name));
    };
    const Tensor a = bench.on_device(bench.random(DType::f32, {m, kK}, "a")), gate = input("gate", {m, kN});
    const Tensor bias = input("bias", {kN}), up = input("up", {m, kN});
    const Tensor y = bench.empty(DType::f32, {m, kN}), other = bench.empty(DType::f32, {m, kN});
    MatmulArgs args{.y = y, .a = a, .transpose_b = true, .blocks_b = b.on_device};
    cuda_kernels().matmul(bench.stream, args);
    const std::vector<double> product = bench.values(y), biases = bench.values(bias), gates = bench.values(gate),
                              ups = bench.values(up);
    const auto expect_close = [&](const Tensor& is, auto&& want) {
      const std::vector<double> got = bench.values(is);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want(i), 2e-6 * (1 + std::abs(want(i)) + std::abs(product[i]))) << i;
    };
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    const auto sum = [&](size_t i) { return product[i] + biases[i % kN]; };

    args.epilogue = {.kind = Epilogue::Kind::gated, .bias = bias, .act = other, .gate = gate};
    cuda_kernels().matmul(bench.stream, args);
    expect_close(y, sum);
    expect_close(other, [&](size_t i) { return gates[i] * sigmoid(gates[i]) * sum(i); });
    args.epilogue = {.kind = Epilogue::Kind::activate, .act = other};
    cuda_kernels().matmul(bench.stream, args);
    expect_close(other, [&](size_t i) { return product[i] * sigmoid(product[i]); });
    args.epilogue = {};
    args.accumulate = true;
    cuda_kernels().matmul(bench.stream, args);
    expect_close(y, [&](size_t i) { return 2 * product[i]; });
    args.accumulate = false;
    args.epilogue = {.kind = Epilogue::Kind::gated_backward, .gate = gate, .up = up, .dgate = other};
    cuda_kernels().matmul(bench.stream, args);
    expect_close(y, [&](size_t i) { return product[i] * gates[i] * sigmoid(gates[i]); });
    expect_close(other, [&](size_t i) {
      const double s = sigmoid(gates[i]);
      return product[i] * ups[i] * s * (1 + gates[i] * (1 - s));
    });
    args.epilogue = {.kind = Epilogue::Kind::activate_backward, .f = Activation::relu, .pre = gate};
    cuda_kernels().matmul(bench.stream, args);
    expect_close(y, [&](size_t i) { return gates[i] > 0 ? product[i] : 0; });
  }
}

TEST_P(CudaMatmulBlocksOfType, ZerosGiveZerosAndWhatIsNoNumberStaysInItsRow) {
  constexpr int64_t kN = 5, kK = 512;
  const Blocks b(bench, GetParam(), kN, kK, 0);
  for (const int64_t m : {5, 9}) {
    const Tensor a = bench.random(DType::f32, {m, kK}, "a"), y = bench.empty(DType::f32, {m, kN});
    std::fill_n(a.data<float>(), kK, 0.0f);
    std::fill_n(a.data<float>() + kK, kK, 1e-38f);
    a.data<float>()[2 * kK + 77] = std::numeric_limits<float>::quiet_NaN();
    a.data<float>()[3 * kK + 200] = -std::numeric_limits<float>::infinity();
    cuda_kernels().matmul(bench.stream,
                          {.y = y, .a = bench.on_device(a), .transpose_b = true, .blocks_b = b.on_device});
    const std::vector<double> got = bench.values(y);
    for (int64_t i = 0; i < m * kN; ++i) {
      const double x = got[size_t(i)];
      if (i < 2 * kN)
        ASSERT_LE(std::abs(x), i < kN ? 0 : 1e-32);
      else
        ASSERT_EQ(std::isfinite(x), i >= 4 * kN) << "row " << i / kN << " of " << m;
    }
  }
}

TEST_P(CudaMatmulBlocksOfType, NeedNoMemoryOnceWarm) {
  const Blocks b(bench, GetParam(), 6, 256, 0);
  for (const int64_t m : {2, 9}) {
    const MatmulArgs args{.y = bench.empty(DType::bf16, {m, 6}),
                          .a = bench.on_device(bench.random(DType::bf16, {m, 256}, "a")),
                          .transpose_b = true,
                          .blocks_b = b.on_device};
    cuda_kernels().matmul(bench.stream, args);
    const int64_t calls = bench.allocator.stats().system_calls;
    cuda_kernels().matmul(bench.stream, args);
    EXPECT_EQ(bench.allocator.stats().system_calls, calls);
  }
}

TEST(CudaMatmulShapeTest, ColumnsKeepThreadsBusy) {
  struct Row {
    int64_t columns, chunks;
    int vectors;
    unsigned blocks, threads;
  };
  for (const Row& r : {Row{4096, 512, 1, 2048, 128}, Row{4097, 512, 2, 2049, 128}, Row{4097, 512, 4, 1025, 128},
                       Row{1, 1, 8, 1, 32}, Row{8, 1024, 8, 2, 256}, Row{8, 4000, 1, 4, 256}, Row{0, 4, 1, 0, 32}}) {
    const cuda::LaunchShape shape = cuda::over_columns(r.columns, r.chunks, r.vectors);
    EXPECT_EQ(shape.blocks_x, r.blocks) << r.columns;
    EXPECT_EQ(shape.threads, r.threads) << r.chunks;
  }
}

TEST(CudaMatmulShapeTest, ScratchMemoryHasALimit) {
  EXPECT_EQ(cuda::columns_at_once(28672, 4096, 2), 28672);           // 224 MiB
  EXPECT_EQ(cuda::columns_at_once(128256, 8192, 2), 16384);          // 256 MiB
  EXPECT_EQ(cuda::columns_at_once(28672, 5000, 2), 26752);           // 255.1 MiB, and 209 times 128
  EXPECT_EQ(cuda::columns_at_once(1000, int64_t(1) << 30, 4), 128);  // never none
  EXPECT_EQ(cuda::columns_at_once(5, 3, 4), 5);
}

}  // namespace
}  // namespace weft
