// CPU matrix products against plain loops in double precision: shapes, dtypes, layouts, epilogues, threads.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "weft/kernels/cpu/cpu.h"
#include "weft/kernels/cpu/matmul_kernels.h"
#include "weft/kernels/cpu/peak.h"

namespace weft {
namespace {

using cpu::MatmulIsa;
using EpilogueKind = Epilogue::Kind;

template <class T>
void fill_thousandths(const Tensor& t, unsigned seed) {
  std::minstd_rand generator(seed);
  for (T& x : std::span(t.data<T>(), size_t(t.numel()))) x = T(float(int(generator() % 4001) - 2000) / 1000);
}

struct Bench {
  explicit Bench(int threads = 1) : team(threads), stream(team, allocator) {}

  Tensor random(DType type, Shape shape, unsigned seed) {
    Tensor t = allocator.empty(type, shape);
    switch (type) {
      case DType::bf16: fill_thousandths<BFloat16>(t, seed); break;
      case DType::f16: fill_thousandths<Float16>(t, seed); break;
      default: fill_thousandths<float>(t, seed);
    }
    return t;
  }
  Tensor pack(const Tensor& b, bool transpose_b) {
    const int64_t k = b.dim(transpose_b ? 1 : 0), n = b.dim(transpose_b ? 0 : 1);
    Tensor packed = allocator.empty(DType::u8, {int64_t(cpu::packed_matmul_b_bytes(b.dtype(), k, n, transpose_b))});
    cpu::pack_matmul_b(stream, packed, b, transpose_b);
    return packed;
  }

  Allocator allocator;
  ThreadTeam team;
  Stream stream;
};

double value(const Tensor& t, int64_t i) {
  switch (t.dtype()) {
    case DType::bf16: return double(float(t.data<BFloat16>()[i]));
    case DType::f16: return double(float(t.data<Float16>()[i]));
    default: return double(t.data<float>()[i]);
  }
}

double activate(Activation f, double x) {
  switch (f) {
    case Activation::gelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::relu: return std::max(x, 0.0);
    case Activation::relu_squared: return std::max(x, 0.0) * std::max(x, 0.0);
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu_quick: return x / (1 + std::exp(-1.702 * x));
    case Activation::swiglu_oai: return activate(Activation::gelu_quick, std::min(x, 7.0));
    case Activation::swiglu_clipped: return activate(Activation::silu, std::min(x, 10.0));
    case Activation::sigmoid: return 1 / (1 + std::exp(-x));
    case Activation::tanh: return std::tanh(x);
    case Activation::identity: return x;
  }
  return 0;
}

double slope(Activation f, double x) {
  if (f == Activation::relu) return x > 0 ? 1 : 0;
  return (activate(f, x + 1e-5) - activate(f, x - 1e-5)) / 2e-5;
}

// ab in double, and the sum of |a||b| which scales its rounding errors.
struct PlainProduct {
  std::vector<double> sum, size;
};

PlainProduct multiply(const MatmulArgs& args, int64_t m, int64_t n, int64_t k) {
  std::vector<double> a(size_t(m * k)), b(size_t(k * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t l = 0; l < k; ++l) a[size_t(i * k + l)] = value(args.a, args.transpose_a ? l * m + i : i * k + l);
  for (int64_t l = 0; l < k; ++l)
    for (int64_t j = 0; j < n; ++j) b[size_t(l * n + j)] = value(args.b, args.transpose_b ? j * k + l : l * n + j);
  PlainProduct e{std::vector<double>(size_t(m * n)), std::vector<double>(size_t(m * n))};
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t l = 0; l < k; ++l) {
      const double x = a[size_t(i * k + l)];
      for (int64_t j = 0; j < n; ++j) {
        e.sum[size_t(i * n + j)] += x * b[size_t(l * n + j)];
        e.size[size_t(i * n + j)] += std::abs(x * b[size_t(l * n + j)]);
      }
    }
  }
  return e;
}

// `size` scales the error of f32 sums; storing in bf16 adds 2^-8 of the value, in f16 2^-11.
void expect_element(const Tensor& t, int64_t i, double expected, double size, const char* what) {
  const double rounding = t.dtype() == DType::bf16 ? 0.00391 : t.dtype() == DType::f16 ? 0.00049 : 0;
  constexpr double kMostHalf = 65504;
  if (t.dtype() == DType::f16 && std::abs(expected) > kMostHalf * 1.001) {
    ASSERT_TRUE(std::isinf(value(t, i))) << what << " at " << i;
    return;
  }
  ASSERT_NEAR(value(t, i), expected, 2e-6 * size + rounding * std::abs(expected) + 1e-6) << what << " at " << i;
}

constexpr const char* kIsaNames[] = {"avx2", "avx512", "avx512bf16", "amx"};

bool has(MatmulIsa isa) { return cpu::can_use(isa); }

std::string name(DType type) { return std::string(weft::name_of(type)); }

struct Size {
  int64_t m, n, k;
};

struct Form {
  bool transpose_a, transpose_b, packed;
};

constexpr Form kForms[] = {{false, true, true},   {false, true, false}, {false, false, true},
                           {false, false, false}, {true, false, false}, {true, false, true}};

class MatmulTest : public testing::TestWithParam<std::tuple<MatmulIsa, DType, DType, Size>> {};

TEST_P(MatmulTest, EqualsPlainLoopsInEveryForm) {
  const auto [isa, type, y_type, size] = GetParam();
  if (!has(isa)) GTEST_SKIP() << "this machine lacks the instructions";
  Bench bench(2);
  const auto [m, n, k] = size;
  for (const Form& form : kForms) {
    for (const bool accumulate : {false, true}) {
      MatmulArgs args;
      args.a = bench.random(type, form.transpose_a ? Shape{k, m} : Shape{m, k}, 1);
      args.b = bench.random(type, form.transpose_b ? Shape{n, k} : Shape{k, n}, 2);
      args.y = bench.random(y_type, {m, n}, 3);
      const Tensor before = bench.random(y_type, {m, n}, 3);
      args.transpose_a = form.transpose_a;
      args.transpose_b = form.transpose_b;
      args.accumulate = accumulate;
      if (form.packed) args.packed_b = bench.pack(args.b, form.transpose_b);
      cpu::matmul_with(bench.stream, args, isa);
      const PlainProduct e = multiply(args, m, n, k);
      for (int64_t i = 0; i < m * n; ++i) {
        const double old = accumulate ? value(before, i) : 0;
        expect_element(args.y, i, e.sum[size_t(i)] + old, e.size[size_t(i)] + std::abs(old), "y");
      }
    }
  }
}

std::string matmul_case_name(const testing::TestParamInfo<MatmulTest::ParamType>& info) {
  const auto [isa, type, y_type, size] = info.param;
  return fmt::format("{}_{}_to_{}_{}x{}x{}", kIsaNames[int(isa)], name(type), name(y_type), size.m, size.n, size.k);
}

constexpr Size kSizes[] = {{1, 1, 1},   {1, 65, 130}, {2, 33, 7},     {5, 16, 64},   {7, 17, 31},    {12, 32, 16},
                           {13, 48, 9}, {16, 31, 40}, {23, 100, 129}, {97, 70, 33},  {101, 131, 5},  {3, 5, 0},
                           {0, 4, 3},   {4, 0, 3},    {30, 40, 1030}, {200, 33, 66}, {100, 40, 1100}};

INSTANTIATE_TEST_SUITE_P(F32, MatmulTest,
                         testing::Combine(testing::Values(MatmulIsa::avx2, MatmulIsa::avx512),
                                          testing::Values(DType::f32), testing::Values(DType::f32),
                                          testing::ValuesIn(kSizes)),
                         matmul_case_name);
INSTANTIATE_TEST_SUITE_P(Bf16, MatmulTest,
                         testing::Combine(testing::Values(MatmulIsa::avx2, MatmulIsa::avx512, MatmulIsa::avx512_bf16,
                                                          MatmulIsa::amx),
                                          testing::Values(DType::bf16), testing::Values(DType::bf16, DType::f32),
                                          testing::ValuesIn(kSizes)),
                         matmul_case_name);

INSTANTIATE_TEST_SUITE_P(F16, MatmulTest,
                         testing::Combine(testing::Values(MatmulIsa::avx2, MatmulIsa::avx512),
                                          testing::Values(DType::f16), testing::Values(DType::f16, DType::f32),
                                          testing::ValuesIn(kSizes)),
                         matmul_case_name);

class EpilogueTest : public testing::TestWithParam<std::tuple<MatmulIsa, DType, EpilogueKind, Activation>> {};

TEST_P(EpilogueTest, EqualsPlainLoops) {
  const auto [isa, type, kind, f] = GetParam();
  if (!has(isa)) GTEST_SKIP() << "this machine lacks the instructions";
  Bench bench(2);
  for (const Size& size : {Size{25, 77, 48}, Size{3, 64, 9}, Size{14, 20, 700}}) {
    for (const bool with_bias : {false, true}) {
      const auto [m, n, k] = size;
      MatmulArgs args;
      args.a = bench.random(type, {m, k}, 1);
      args.b = bench.random(type, {n, k}, 2);
      args.y = bench.random(type, {m, n}, 3);
      args.transpose_b = true;
      Epilogue& e = args.epilogue;
      e.kind = kind;
      e.f = f;
      if (with_bias) e.bias = bench.random(type, {n}, 4);
      e.act =
          kind == EpilogueKind::activate || kind == EpilogueKind::gated ? bench.random(type, {m, n}, 5) : Tensor();
      e.gate = kind == EpilogueKind::gated || kind == EpilogueKind::gated_backward ? bench.random(type, {m, n}, 6)
                                                                                   : Tensor();
      e.up = kind == EpilogueKind::gated_backward ? bench.random(type, {m, n}, 7) : Tensor();
      e.pre = kind == EpilogueKind::activate_backward ? bench.random(type, {m, n}, 8) : Tensor();
      e.dgate = kind == EpilogueKind::gated_backward ? bench.random(type, {m, n}, 9) : Tensor();
      cpu::matmul_with(bench.stream, args, isa);
      const PlainProduct expected = multiply(args, m, n, k);
      for (int64_t i = 0; i < m * n; ++i) {
        const double ab = expected.sum[size_t(i)] + (with_bias ? value(e.bias, i % n) : 0);
        const double scale = 5 * (expected.size[size_t(i)] + 2);
        const double y = kind == EpilogueKind::activate_backward ? ab * slope(f, value(e.pre, i))
                         : kind == EpilogueKind::gated_backward  ? ab * activate(f, value(e.gate, i))
                                                                 : ab;
        expect_element(args.y, i, y, scale, "y");
        if (kind == EpilogueKind::activate)
          expect_element(e.act, i, activate(f, ab), scale * std::max(1.0, slope(f, ab)), "act");
        if (kind == EpilogueKind::gated) expect_element(e.act, i, activate(f, value(e.gate, i)) * ab, scale, "act");
        if (kind == EpilogueKind::gated_backward)
          expect_element(e.dgate, i, ab * value(e.up, i) * slope(f, value(e.gate, i)), scale, "dgate");
      }
    }
  }
}

std::string name_of_epilogue(const testing::TestParamInfo<EpilogueTest::ParamType>& info) {
  constexpr const char* kKinds[] = {"none", "activate", "gated", "activate_backward", "gated_backward"};
  constexpr const char* kActivationNames[] = {"gelu", "gelu_tanh", "relu", "relu2", "silu"};
  const auto [isa, type, kind, f] = info.param;
  return fmt::format("{}_{}_{}_{}", kIsaNames[int(isa)], name(type), kKinds[int(kind)], kActivationNames[int(f)]);
}

INSTANTIATE_TEST_SUITE_P(All, EpilogueTest,
                         testing::Combine(testing::Values(MatmulIsa::avx2, MatmulIsa::avx512_bf16, MatmulIsa::amx),
                                          testing::Values(DType::f32, DType::bf16, DType::f16),
                                          testing::Values(EpilogueKind::none, EpilogueKind::activate,
                                                          EpilogueKind::gated, EpilogueKind::activate_backward,
                                                          EpilogueKind::gated_backward),
                                          testing::Values(Activation::gelu, Activation::gelu_tanh, Activation::relu,
                                                          Activation::relu_squared, Activation::silu)),
                         name_of_epilogue);

class MatmulBits : public testing::TestWithParam<DType> {};

// y of x[m, k] w[n, k]^T by a team of `threads`.
std::vector<float> product(int threads, DType type, Size size, bool packed) {
  Bench bench(threads);
  MatmulArgs args;
  args.a = bench.random(type, {300, size.k}, 1).slice_rows(0, size.m);
  args.b = bench.random(type, {size.n, size.k}, 2);
  args.y = bench.allocator.empty(DType::f32, {size.m, size.n});
  args.transpose_b = true;
  if (packed) args.packed_b = bench.pack(args.b, true);
  cpu::matmul(bench.stream, args);
  return {args.y.data<float>(), args.y.data<float>() + args.y.numel()};
}

TEST_P(MatmulBits, DoNotDependOnThreadsOrPacking) {
  const Size size{300, 257, 1100};
  const std::vector<float> one = product(1, GetParam(), size, true);
  EXPECT_EQ(one, product(2, GetParam(), size, true));
  EXPECT_EQ(one, product(3, GetParam(), size, true));
  EXPECT_EQ(one, product(2, GetParam(), size, false));
}

TEST(MatmulTeams, OfLargeMachines) {
  const Size size{300, 257, 1100};
  EXPECT_EQ(product(1, DType::f32, size, true), product(300, DType::f32, size, true));
}

TEST_P(MatmulBits, OfARowDoNotDependOnOtherRows) {
  const std::vector<float> many = product(1, GetParam(), {300, 65, 1100}, true);
  for (const int64_t m : {1, 2, 13, 100}) {
    const std::vector<float> few = product(2, GetParam(), {m, 65, 1100}, true);
    EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin())) << m << " rows";
  }
}

TEST_P(MatmulBits, NeedNoMemoryOnceWarm) {
  Bench bench(2);
  MatmulArgs args;
  args.a = bench.random(GetParam(), {64, 50}, 1);
  args.b = bench.random(GetParam(), {64, 70}, 2);
  args.y = bench.allocator.zeros(DType::f32, {50, 70});
  args.transpose_a = args.accumulate = true;
  cpu::matmul(bench.stream, args);
  const AllocatorStats warm = bench.allocator.stats();
  const int64_t scratch = bench.stream.scratch_bytes();
  cpu::matmul(bench.stream, args);
  EXPECT_EQ(bench.allocator.stats().system_calls, warm.system_calls);
  EXPECT_EQ(bench.allocator.stats().live_bytes, warm.live_bytes);
  EXPECT_EQ(bench.stream.scratch_bytes(), scratch);
}

INSTANTIATE_TEST_SUITE_P(All, MatmulBits, testing::Values(DType::f32, DType::bf16, DType::f16),
                         [](const auto& type) { return name(type.param); });

TEST(Matmul, RefusesWhatItCannotMultiply) {
  Bench bench;
  MatmulArgs args;
  args.a = bench.random(DType::f32, {4, 3}, 1);
  args.b = bench.random(DType::f32, {5, 2}, 2);
  args.y = bench.random(DType::f32, {4, 2}, 3);
  EXPECT_THROW(cpu::matmul(bench.stream, args), Error);
  args.a = bench.allocator.zeros(DType::f64, {4, 5});
  args.b = bench.allocator.zeros(DType::f64, {5, 2});
  EXPECT_THROW(cpu::matmul(bench.stream, args), Error);
  args.a = bench.random(DType::f32, {4, 5}, 1);
  args.b = bench.random(DType::f32, {5, 2}, 2);
  args.packed_b = bench.allocator.zeros(DType::u8, {64});
  EXPECT_THROW(cpu::matmul(bench.stream, args), Error);
}

TEST(Peak, IsPlausible) {
  ThreadTeam team(1);
  const double f32 = cpu::measure_peak_flops(team, DType::f32);
  EXPECT_GT(f32, 1e9);
  EXPECT_GT(cpu::measure_peak_flops(team, DType::bf16), 0.5 * f32);
  EXPECT_THROW(cpu::measure_peak_flops(team, DType::i32), Error);
}

}  // namespace
}  // namespace weft
