// Tiled attention against plain loops in double: outputs, log-sum-exp and all gradients, over shapes, dtypes and
// CPUs.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <span>

#include "kernels/plain_attention.h"
#include "weft/kernels/cpu/attention.h"
#include "weft/kernels/cpu/simd_targets.h"
// After simd_targets.h, which says what is compiled.
#include <hwy/targets.h>

namespace weft {
namespace {

enum class CpuPath { best, no_bf16_dot, avx2 };

template <class T>
void fill(const Tensor& t, unsigned seed) {
  std::minstd_rand generator(seed);
  std::uniform_real_distribution<float> uniform(-1.7f, 1.7f);
  for (T& x : std::span(t.data<T>(), size_t(t.numel()))) x = T(uniform(generator));
}

// Tensors of one case, random and rounded to dtype, and the kernels run on them.
class Trial {
 public:
  Trial(const AttentionCase& c, DType dtype, int num_threads, CpuPath path)
      : c_(c), dtype_(dtype), team_(num_threads), stream_(team_, allocator_), spans_(case_spans(c)) {
    shape_ = {.num_heads = c.num_heads,
              .num_kv_heads = c.num_kv_heads,
              .head_dim = c.dim,
              .spans = spans_.data(),
              .num_spans = int(spans_.size()),
              .scale = 1.3f / std::sqrt(float(c.dim)),
              .softcap = c.softcap,
              .window = c.window,
              .value_dim = c.value_dim,
              .first_head = c.first_head,
              .total_heads = c.total_heads};
    dropout_ = {.p = c.dropout, .seed = 0x123456789abcull, .stream = (uint64_t(5) << 40) + 3};
    const int64_t num_q = starts(c.q).back(), num_k = starts(c.k).back();
    q = random(num_q, c.num_heads, c.dim, 1), dy = random(num_q, c.num_heads, c.values_dim(), 4);
    k = random(num_k, c.num_kv_heads, c.dim, 2), v = random(num_k, c.num_kv_heads, c.values_dim(), 3);
    y = like(dy), dq = like(q), dk = like(k), dv = like(v);
    lse = allocator_.empty(DType::f32, {c.num_heads, num_q});
    if (path == CpuPath::avx2) hwy::SetSupportedTargetsForTest(HWY_AVX2);
    const cpu::AttentionOptions options{.use_bf16_dot = path == CpuPath::best};
    cpu::attention(stream_, {y, lse, q, k, v, shape_, dropout_}, options);
    cpu::attention_backward(stream_, {dq, dk, dv, dy, y, lse, q, k, v, shape_, dropout_}, options);
    hwy::SetSupportedTargetsForTest(0);
  }

  AttentionResults expected() const {
    return plain_attention(c_, shape_.scale, read_doubles(q), read_doubles(k), read_doubles(v), read_doubles(dy),
                           read_doubles(y), dropout_);
  }
  std::vector<Tensor> outputs() const { return {y, lse, dq, dk, dv}; }

  // Runs both once more and tells how often the system was asked for memory.
  int64_t system_calls_of_another_run() {
    const int64_t before = allocator_.stats().system_calls;
    cpu::attention(stream_, {y, lse, q, k, v, shape_, dropout_});
    cpu::attention_backward(stream_, {dq, dk, dv, dy, y, lse, q, k, v, shape_, dropout_});
    return allocator_.stats().system_calls - before;
  }

 private:
  Tensor random(int64_t rows, int64_t heads, int64_t dim, unsigned seed) {
    Tensor t = allocator_.empty(dtype_, {rows, heads, dim});
    switch (dtype_) {
      case DType::f32: fill<float>(t, seed); break;
      case DType::bf16: fill<BFloat16>(t, seed); break;
      default: fill<Float16>(t, seed);
    }
    return t;
  }
  Tensor like(const Tensor& t) {
    Tensor result = allocator_.empty(dtype_, t.shape());
    std::memset(result.raw(), 0xff, result.bytes());  // NaN: whatever is not written shows
    return result;
  }

  AttentionCase c_;
  DType dtype_;
  Allocator allocator_;
  ThreadTeam team_;
  Stream stream_;
  std::vector<AttentionSpan> spans_;
  AttentionShape shape_;
  DropoutKey dropout_;

 public:
  Tensor q, k, v, dy, y, lse, dq, dk, dv;
};

void expect_close(const Tensor& got, const Doubles& expected, double tolerance, const char* name) {
  const Doubles values = read_doubles(got);
  double largest = 5e-2;  // gradients of scores are differences of numbers of about one
  for (const double x : expected) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == expected[i]) continue;  // also infinities
    ASSERT_LE(std::abs(values[i] - expected[i]), tolerance * largest)
        << name << "[" << i << "] is " << values[i] << ", expected " << expected[i];
  }
}

void expect_reference(const AttentionCase& c, DType dtype, int num_threads, CpuPath path) {
  SCOPED_TRACE(fmt::format("{} threads={} path={}", name_of(dtype), num_threads, int(path)));
  const Trial run(c, dtype, num_threads, path);
  const AttentionResults r = run.expected();
  const double tolerance = dtype == DType::f32 ? 3e-5 : dtype == DType::bf16 ? 2e-2 : 2e-3;
  expect_close(run.y, r.y, tolerance, "y");
  expect_close(run.lse, r.lse, dtype == DType::f32 ? 2e-6 : 2e-5, "lse");
  expect_close(run.dq, r.dq, tolerance, "dq");
  expect_close(run.dk, r.dk, tolerance, "dk");
  expect_close(run.dv, r.dv, tolerance, "dv");
}

class CpuAttention : public testing::TestWithParam<AttentionCase> {};

TEST_P(CpuAttention, EqualsPlainLoops) {
  expect_reference(GetParam(), DType::f32, 1, CpuPath::best);
  expect_reference(GetParam(), DType::bf16, 3, CpuPath::best);
  expect_reference(GetParam(), DType::f16, 2, CpuPath::best);
}

TEST_P(CpuAttention, EqualsPlainLoopsOnOlderCpus) {
  if ((HWY_TARGETS & ~HWY_AVX2) == 0) GTEST_SKIP() << "the oldest instruction set is the only one that was compiled";
  expect_reference(GetParam(), DType::bf16, 1, CpuPath::no_bf16_dot);
  expect_reference(GetParam(), DType::f32, 3, CpuPath::avx2);
  expect_reference(GetParam(), DType::bf16, 1, CpuPath::avx2);
  expect_reference(GetParam(), DType::f16, 1, CpuPath::avx2);
}

TEST_P(CpuAttention, SameBitsForAnyTeam) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Trial one(GetParam(), dtype, 1, CpuPath::best), three(GetParam(), dtype, 3, CpuPath::best);
    const auto a = one.outputs(), b = three.outputs();
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(std::memcmp(a[i].raw(), b[i].raw(), a[i].bytes()) == 0) << "output " << i;
    }
  }
}

std::string attention_case_name(const testing::TestParamInfo<AttentionCase>& info) {
  const AttentionCase& c = info.param;
  const char* kind = !c.spans.empty() ? "Spans" : c.causal ? "Causal" : "Full";
  return fmt::format("{}_N{}K{}D{}{}{}{}{}{}", info.index, c.num_heads, c.num_kv_heads, c.dim, kind,
                     c.dropout > 0 ? "Dropout" : "", c.window ? fmt::format("Window{}", c.window) : "",
                     c.softcap > 0 ? "Cap" : "", c.value_dim ? fmt::format("Values{}", c.value_dim) : "");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CpuAttention,
    testing::Values(AttentionCase{1, 1, 1, {5}, {5}}, AttentionCase{2, 1, 8, {17, 0, 1, 33}, {17, 0, 1, 33}},
                    AttentionCase{3, 3, 64, {70, 64, 16}, {70, 64, 16}},
                    AttentionCase{2, 2, 64, {65, 31}, {65, 31}, false}, AttentionCase{4, 2, 32, {130, 3}, {130, 3}},
                    AttentionCase{6, 2, 80, {40, 9}, {40, 9}}, AttentionCase{4, 1, 128, {96}, {96}},
                    AttentionCase{2, 1, 256, {20}, {20}}, AttentionCase{1, 1, 37, {23, 50}, {23, 50}},
                    AttentionCase{4, 2, 64, {1, 1, 2}, {200, 1, 77}}, AttentionCase{4, 4, 128, {1, 1}, {1300, 515}},
                    AttentionCase{2, 1, 16, {40, 7}, {25, 0}}, AttentionCase{2, 1, 16, {3, 0, 20}, {70, 4, 5}, false},
                    AttentionCase{2, 2, 32, {90}, {150}}, AttentionCase{2, 1, 128, {280}, {600}},
                    AttentionCase{1, 1, 256, {300}, {300}}, AttentionCase{1, 1, 128, {70}, {300}, false},
                    AttentionCase{4, 2, 32, {50, 20}, {50, 20}, true, 0.2f},
                    AttentionCase{2, 2, 24, {19, 1}, {40, 600}, false, 0.5f}),
    attention_case_name);

// Rows and keys in no span, keys of several spans, spans without keys or queries, keys in another order than queries.
const std::vector<AttentionSpan> kHoles{{3, 20, 5, 30, true, 1000, 9}, {25, 60, 40, 77, false, 9000, 0}};
const std::vector<AttentionSpan> kSharedKeys{{0, 30, 0, 30, true, 0, 0}, {30, 70, 0, 130, true, 90, 0}};
const std::vector<AttentionSpan> kEmpty{
    {0, 10, 7, 7, true, 0, 0}, {10, 10, 0, 40, true, 0, 0}, {12, 20, 0, 9, false, 5, 3}, {20, 22, 9, 9, false, 0, 0}};
const std::vector<AttentionSpan> kTangled{{0, 65, 300, 420, true, 11, 0},
                                          {65, 66, 0, 700, false, 500, 77},
                                          {70, 200, 350, 500, true, 7, 50},
                                          {200, 290, 0, 301, false, 3000, 12},
                                          {290, 300, 690, 700, true, 1, 1}};

INSTANTIATE_TEST_SUITE_P(Spans, CpuAttention,
                         testing::Values(AttentionCase{2, 1, 16, {64}, {80}, true, 0, kHoles},
                                         AttentionCase{3, 3, 32, {64}, {80}, true, 0.3f, kHoles, 5, 11},
                                         AttentionCase{4, 2, 64, {70}, {130}, true, 0, kSharedKeys},
                                         AttentionCase{2, 2, 128, {70}, {130}, true, 0.2f, kSharedKeys, 2, 4},
                                         AttentionCase{2, 1, 8, {22}, {41}, true, 0, kEmpty},
                                         AttentionCase{2, 2, 256, {300}, {700}, true, 0, kTangled},
                                         AttentionCase{4, 1, 128, {300}, {700}, true, 0.2f, kTangled, 0, 8},
                                         AttentionCase{2, 1, 48, {300}, {700}, true, 0, kTangled}),
                         attention_case_name);

// Keys that visit from before the queries, at some distance.
const std::vector<AttentionSpan> kVisiting{{0, 70, 0, 130, false, 0, 0, 40}, {70, 140, 130, 200, false, 70, 0, 300}};

INSTANTIATE_TEST_SUITE_P(
    Windows, CpuAttention,
    testing::Values(
        AttentionCase{.num_heads = 2, .num_kv_heads = 1, .dim = 16, .q = {33}, .k = {33}, .window = 1},
        AttentionCase{.num_heads = 3, .num_kv_heads = 3, .dim = 64, .q = {70, 5}, .k = {70, 5}, .window = 7},
        AttentionCase{.num_heads = 4, .num_kv_heads = 2, .dim = 32, .q = {300}, .k = {300}, .window = 65},
        AttentionCase{.num_heads = 2, .num_kv_heads = 1, .dim = 128, .q = {280}, .k = {600}, .window = 130},
        AttentionCase{.num_heads = 1, .num_kv_heads = 1, .dim = 256, .q = {700}, .k = {700}, .window = 100},
        AttentionCase{.num_heads = 4, .num_kv_heads = 1, .dim = 64, .q = {1, 1, 2}, .k = {1300, 7, 90}, .window = 40},
        AttentionCase{
            .num_heads = 2, .num_kv_heads = 2, .dim = 24, .q = {190}, .k = {190}, .dropout = 0.3f, .window = 20},
        AttentionCase{
            .num_heads = 2, .num_kv_heads = 1, .dim = 32, .q = {140}, .k = {200}, .spans = kVisiting, .window = 90},
        AttentionCase{.num_heads = 2, .num_kv_heads = 1, .dim = 32, .q = {40}, .k = {23}, .window = 5},
        AttentionCase{.num_heads = 4, .num_kv_heads = 2, .dim = 64, .q = {200}, .k = {200}, .window = 500}),
    attention_case_name);

INSTANTIATE_TEST_SUITE_P(
    CapsAndValues, CpuAttention,
    testing::Values(
        AttentionCase{.num_heads = 4, .num_kv_heads = 2, .dim = 64, .q = {90, 3}, .k = {90, 3}, .softcap = 1.5f},
        AttentionCase{.num_heads = 2, .num_kv_heads = 1, .dim = 128, .q = {1, 2}, .k = {700, 60}, .softcap = 0.7f},
        AttentionCase{
            .num_heads = 2, .num_kv_heads = 1, .dim = 80, .q = {150}, .k = {150}, .dropout = 0.2f, .softcap = 2},
        AttentionCase{
            .num_heads = 2, .num_kv_heads = 2, .dim = 64, .q = {200}, .k = {200}, .window = 33, .softcap = 3},
        AttentionCase{.num_heads = 3, .num_kv_heads = 3, .dim = 48, .q = {100}, .k = {100}, .value_dim = 32},
        AttentionCase{.num_heads = 2, .num_kv_heads = 1, .dim = 20, .q = {70, 9}, .k = {70, 9}, .value_dim = 70},
        AttentionCase{.num_heads = 2, .num_kv_heads = 2, .dim = 192, .q = {130}, .k = {330}, .value_dim = 128},
        AttentionCase{.num_heads = 2, .num_kv_heads = 2, .dim = 24, .q = {1, 1}, .k = {1200, 5}, .value_dim = 17},
        AttentionCase{.num_heads = 2,
                      .num_kv_heads = 1,
                      .dim = 24,
                      .q = {90},
                      .k = {90},
                      .causal = false,
                      .dropout = 0.4f,
                      .window = 25,
                      .value_dim = 40,
                      .softcap = 1}),
    attention_case_name);

TEST(CpuAttention, ReusesItsScratch) {
  Trial run({2, 1, 64, {300}, {300}}, DType::f32, 2, CpuPath::best);
  // A worker that got no task before may ask once.
  run.system_calls_of_another_run();
  int64_t calls = 0;
  for (int i = 0; i < 5; ++i) calls += run.system_calls_of_another_run();
  EXPECT_LE(calls, 2);
}

TEST(CpuAttention, HiddenKeysLeaveNoTrace) {
  const AttentionCase c{2, 1, 64, {80}, {80}};
  Trial run(c, DType::f32, 1, CpuPath::best);
  const Doubles before = read_doubles(run.y);
  for (int64_t e = 40 * 64; e < 80 * 64; ++e) run.v.data<float>()[e] = 3e37f, run.k.data<float>()[e] = 1e3f;
  run.system_calls_of_another_run();
  const Doubles after = read_doubles(run.y);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 40 * 2 * 64, after.begin()));
}

TEST(CpuAttention, NotANumberShows) {
  const AttentionCase c{1, 1, 64, {80}, {80}};
  Trial run(c, DType::bf16, 1, CpuPath::best);
  run.q.data<BFloat16>()[70 * 64 + 3] = BFloat16(NAN);
  run.system_calls_of_another_run();
  EXPECT_TRUE(std::isnan(float(run.y.data<BFloat16>()[70 * 64])));
  EXPECT_FALSE(std::isnan(float(run.y.data<BFloat16>()[69 * 64])));
}

TEST(CpuAttention, NoHeadsAndNoRowsAreLegal) {
  Trial none({0, 2, 16, {5}, {5}}, DType::f32, 1, CpuPath::best);
  EXPECT_EQ(read_doubles(none.dk), Doubles(5 * 2 * 16, 0.0));
  EXPECT_NO_THROW(Trial({0, 0, 16, {5}, {5}}, DType::bf16, 1, CpuPath::best));
  EXPECT_NO_THROW(Trial({2, 1, 16, {0}, {0}}, DType::f32, 2, CpuPath::best));
}

TEST(CpuAttention, RefusesWhatItCannotDo) {
  ThreadTeam team(1);
  Allocator allocator;
  Stream stream(team, allocator);
  const AttentionSpan span{0, 2, 0, 2};
  const Tensor x = allocator.zeros(DType::f32, {2, 3, 8}), exact = allocator.zeros(DType::f64, {2, 3, 8});
  AttentionShape shape{.num_heads = 3, .num_kv_heads = 3, .head_dim = 8, .spans = &span, .num_spans = 1, .scale = 1};
  const Tensor y = allocator.zeros(DType::f32, {2, 3, 8});
  EXPECT_NO_THROW(cpu::attention(stream, {y, {}, x, x, x, shape, {}}));
  EXPECT_THROW(cpu::attention(stream, {exact, {}, exact, exact, exact, shape, {}}), Error);
  shape.num_kv_heads = 2;
  EXPECT_THROW(cpu::attention(stream, {y, {}, x, x, x, shape, {}}), Error);
  shape.num_kv_heads = 3, shape.scale = 0;
  EXPECT_THROW(cpu::attention(stream, {y, {}, x, x, x, shape, {}}), Error);
}

}  // namespace
}  // namespace weft
