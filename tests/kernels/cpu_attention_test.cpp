// Tiled attention against plain loops in double: outputs, log-sum-exp and all gradients, over shapes, dtypes and
// CPUs.
#include <gtest/gtest.h>

#include <hwy/targets.h>
#include <cmath>
#include <random>

#include "weft/base/philox.h"
#include "weft/kernels/cpu/attention.h"

namespace weft {
namespace {

enum class Path { best, no_bf16_dot, avx2 };

struct Case {
  int num_heads, num_kv_heads, dim;
  std::vector<int> q, k;  // rows of each sequence
  bool causal = true;
  float dropout = 0;
};

using Doubles = std::vector<double>;

std::vector<int32_t> starts(const std::vector<int>& lengths) {
  std::vector<int32_t> result{0};
  for (const int n : lengths) result.push_back(result.back() + n);
  return result;
}

Doubles read(const Tensor& t) {
  Doubles values(static_cast<size_t>(t.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = t.dtype() == DType::f32 ? t.data<float>()[i] : float(t.data<BFloat16>()[i]);
  }
  return values;
}

struct Reference {
  Doubles y, lse, dq, dk, dv;
};

// The contract of kernels.h, word by word. The backward is that of the y it is given, which bf16 has rounded.
Reference reference(const Case& c, float scale, const Doubles& q, const Doubles& k, const Doubles& v,
                    const Doubles& dy, const Doubles& given_y, const DropoutKey& key) {
  const auto q_start = starts(c.q), k_start = starts(c.k);
  const int64_t d = c.dim, n = c.num_heads, kv = c.num_kv_heads, t = q_start.back();
  Reference r{Doubles(q.size()), Doubles(size_t(n * t)), Doubles(q.size()), Doubles(k.size()), Doubles(k.size())};
  for (size_t s = 0; s < c.q.size(); ++s) {
    for (int64_t row = 0; row < c.q[s]; ++row) {
      const int64_t visible = c.causal ? std::clamp<int64_t>(row + 1 + c.k[s] - c.q[s], 0, c.k[s]) : c.k[s];
      for (int64_t h = 0; h < n; ++h) {
        const int64_t at = ((q_start[s] + row) * n + h) * d;
        const auto key_at = [&](int64_t j) { return ((k_start[s] + j) * kv + h / (n / kv)) * d; };
        Doubles p(static_cast<size_t>(visible)), keep(p.size(), 1.0), dp(p.size());
        double maximum = -HUGE_VAL, sum = 0, delta = 0;
        for (int64_t j = 0; j < visible; ++j) {
          for (int64_t e = 0; e < d; ++e) p[j] += q[at + e] * k[key_at(j) + e] * scale;
          maximum = std::max(maximum, p[j]);
        }
        for (double& x : p) sum += x = std::exp(x - maximum);
        r.lse[h * t + q_start[s] + row] = visible ? maximum + std::log(sum) : -HUGE_VAL;
        for (int64_t j = 0; j < visible; ++j) {
          const uint64_t index = ((key.first + uint64_t(q_start[s] + row)) * uint64_t(n) + uint64_t(h)) * (1u << 24);
          if (key.p > 0) {
            const float u = to_uniform(philox(key.seed, index + uint64_t(j), key.stream)[0]);
            keep[j] = u >= key.p ? 1.0 / (1.0 - key.p) : 0.0;
          }
          p[j] /= sum;
          for (int64_t e = 0; e < d; ++e) {
            r.y[at + e] += p[j] * keep[j] * v[key_at(j) + e];
            r.dv[key_at(j) + e] += p[j] * keep[j] * dy[at + e];
            dp[j] += keep[j] * dy[at + e] * v[key_at(j) + e];
          }
        }
        for (int64_t e = 0; e < d; ++e) delta += dy[at + e] * given_y[at + e];
        for (int64_t j = 0; j < visible; ++j) {
          const double ds = p[j] * (dp[j] - delta) * scale;
          for (int64_t e = 0; e < d; ++e) {
            r.dq[at + e] += ds * k[key_at(j) + e];
            r.dk[key_at(j) + e] += ds * q[at + e];
          }
        }
      }
    }
  }
  return r;
}

// Tensors of one case, random and rounded to dtype, and the kernels run on them.
class Trial {
 public:
  Trial(const Case& c, DType dtype, int num_threads, Path path)
      : c_(c),
        dtype_(dtype),
        team_(num_threads),
        stream_(team_, allocator_),
        q_start_(starts(c.q)),
        k_start_(starts(c.k)) {
    shape_ = {.num_heads = c.num_heads,
              .num_kv_heads = c.num_kv_heads,
              .head_dim = c.dim,
              .q_start = q_start_.data(),
              .k_start = k_start_.data(),
              .num_sequences = int(c.q.size()),
              .causal = c.causal,
              .scale = 1.3f / std::sqrt(float(c.dim))};
    dropout_ = {
        .p = c.dropout, .seed = 0x123456789abcull, .stream = (uint64_t(5) << 40) + 3, .first = 0x7000000001ull};
    q = random(q_start_.back(), c.num_heads, 1), dy = random(q_start_.back(), c.num_heads, 4);
    k = random(k_start_.back(), c.num_kv_heads, 2), v = random(k_start_.back(), c.num_kv_heads, 3);
    y = like(q), dq = like(q), dk = like(k), dv = like(k);
    lse = allocator_.empty(DType::f32, {c.num_heads, q_start_.back()});
    if (path == Path::avx2) hwy::SetSupportedTargetsForTest(HWY_AVX2);
    const cpu::AttentionOptions options{.use_bf16_dot = path == Path::best};
    cpu::attention(stream_, {y, lse, q, k, v, shape_, dropout_}, options);
    cpu::attention_backward(stream_, {dq, dk, dv, dy, y, lse, q, k, v, shape_, dropout_}, options);
    hwy::SetSupportedTargetsForTest(0);
  }

  Reference expected() const {
    return reference(c_, shape_.scale, read(q), read(k), read(v), read(dy), read(y), dropout_);
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
  Tensor random(int64_t rows, int64_t heads, unsigned seed) {
    Tensor t = allocator_.empty(dtype_, {rows, heads, c_.dim});
    std::minstd_rand generator(seed);
    std::uniform_real_distribution<float> uniform(-1.7f, 1.7f);
    for (int64_t i = 0; i < t.numel(); ++i) {
      const float x = uniform(generator);
      if (dtype_ == DType::f32) {
        t.data<float>()[i] = x;
      } else {
        t.data<BFloat16>()[i] = BFloat16(x);
      }
    }
    return t;
  }
  Tensor like(const Tensor& t) {
    Tensor result = allocator_.empty(dtype_, t.shape());
    std::memset(result.raw(), 0xff, result.bytes());  // NaN: whatever is not written shows
    return result;
  }

  Case c_;
  DType dtype_;
  Allocator allocator_;
  ThreadTeam team_;
  Stream stream_;
  std::vector<int32_t> q_start_, k_start_;
  AttentionShape shape_;
  DropoutKey dropout_;

 public:
  Tensor q, k, v, dy, y, lse, dq, dk, dv;
};

void expect_close(const Tensor& got, const Doubles& expected, double tolerance, const char* name) {
  const Doubles values = read(got);
  double largest = 1e-3;
  for (const double x : expected) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == expected[i]) continue;  // also infinities
    ASSERT_LE(std::abs(values[i] - expected[i]), tolerance * largest)
        << name << "[" << i << "] is " << values[i] << ", expected " << expected[i];
  }
}

void expect_reference(const Case& c, DType dtype, int num_threads, Path path) {
  SCOPED_TRACE(fmt::format("{} threads={} path={}", name_of(dtype), num_threads, int(path)));
  const Trial run(c, dtype, num_threads, path);
  const Reference r = run.expected();
  const double tolerance = dtype == DType::f32 ? 2e-5 : 2e-2;
  expect_close(run.y, r.y, tolerance, "y");
  expect_close(run.lse, r.lse, dtype == DType::f32 ? 2e-6 : 2e-5, "lse");
  expect_close(run.dq, r.dq, tolerance, "dq");
  expect_close(run.dk, r.dk, tolerance, "dk");
  expect_close(run.dv, r.dv, tolerance, "dv");
}

class CpuAttention : public testing::TestWithParam<Case> {};

TEST_P(CpuAttention, EqualsPlainLoops) {
  expect_reference(GetParam(), DType::f32, 1, Path::best);
  expect_reference(GetParam(), DType::bf16, 3, Path::best);
}

TEST_P(CpuAttention, EqualsPlainLoopsOnOlderCpus) {
  expect_reference(GetParam(), DType::bf16, 1, Path::no_bf16_dot);
  expect_reference(GetParam(), DType::f32, 3, Path::avx2);
  expect_reference(GetParam(), DType::bf16, 1, Path::avx2);
}

TEST_P(CpuAttention, SameBitsForAnyTeam) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Trial one(GetParam(), dtype, 1, Path::best), three(GetParam(), dtype, 3, Path::best);
    const auto a = one.outputs(), b = three.outputs();
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(std::memcmp(a[i].raw(), b[i].raw(), a[i].bytes()) == 0) << "output " << i;
    }
  }
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return fmt::format("{}_N{}K{}D{}{}{}", info.index, c.num_heads, c.num_kv_heads, c.dim, c.causal ? "Causal" : "Full",
                     c.dropout > 0 ? "Dropout" : "");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CpuAttention,
    testing::Values(Case{1, 1, 1, {5}, {5}}, Case{2, 1, 8, {17, 0, 1, 33}, {17, 0, 1, 33}},
                    Case{3, 3, 64, {70, 64, 16}, {70, 64, 16}}, Case{2, 2, 64, {65, 31}, {65, 31}, false},
                    Case{4, 2, 32, {130, 3}, {130, 3}}, Case{6, 2, 80, {40, 9}, {40, 9}}, Case{4, 1, 128, {96}, {96}},
                    Case{2, 1, 256, {20}, {20}}, Case{1, 1, 37, {23, 50}, {23, 50}},
                    Case{4, 2, 64, {1, 1, 2}, {200, 1, 77}}, Case{4, 4, 128, {1, 1}, {1300, 515}},
                    Case{2, 1, 16, {40, 7}, {25, 0}}, Case{2, 1, 16, {3, 0, 20}, {70, 4, 5}, false},
                    Case{2, 2, 32, {90}, {150}}, Case{2, 1, 128, {280}, {600}}, Case{1, 1, 256, {300}, {300}},
                    Case{1, 1, 128, {70}, {300}, false}, Case{4, 2, 32, {50, 20}, {50, 20}, true, 0.2f},
                    Case{2, 2, 24, {19, 1}, {40, 600}, false, 0.5f}),
    name_of_case);

TEST(CpuAttention, ReusesItsScratch) {
  Trial run({2, 1, 64, {300}, {300}}, DType::f32, 2, Path::best);
  // A worker that got no task before may ask once.
  run.system_calls_of_another_run();
  int64_t calls = 0;
  for (int i = 0; i < 5; ++i) calls += run.system_calls_of_another_run();
  EXPECT_LE(calls, 2);
}

TEST(CpuAttention, HiddenKeysLeaveNoTrace) {
  const Case c{2, 1, 64, {80}, {80}};
  Trial run(c, DType::f32, 1, Path::best);
  const Doubles before = read(run.y);
  for (int64_t e = 40 * 64; e < 80 * 64; ++e) run.v.data<float>()[e] = 3e37f, run.k.data<float>()[e] = 1e3f;
  run.system_calls_of_another_run();
  const Doubles after = read(run.y);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 40 * 2 * 64, after.begin()));
}

TEST(CpuAttention, NotANumberShows) {
  const Case c{1, 1, 64, {80}, {80}};
  Trial run(c, DType::bf16, 1, Path::best);
  run.q.data<BFloat16>()[70 * 64 + 3] = BFloat16(NAN);
  run.system_calls_of_another_run();
  EXPECT_TRUE(std::isnan(float(run.y.data<BFloat16>()[70 * 64])));
  EXPECT_FALSE(std::isnan(float(run.y.data<BFloat16>()[69 * 64])));
}

TEST(CpuAttention, RefusesWhatItCannotDo) {
  ThreadTeam team(1);
  Allocator allocator;
  Stream stream(team, allocator);
  const int32_t start[] = {0, 2};
  const Tensor x = allocator.zeros(DType::f32, {2, 3, 8}), half = allocator.zeros(DType::f16, {2, 3, 8});
  AttentionShape shape{.num_heads = 3,
                       .num_kv_heads = 3,
                       .head_dim = 8,
                       .q_start = start,
                       .k_start = start,
                       .num_sequences = 1,
                       .scale = 1};
  const Tensor y = allocator.zeros(DType::f32, {2, 3, 8});
  EXPECT_NO_THROW(cpu::attention(stream, {y, {}, x, x, x, shape, {}}));
  EXPECT_THROW(cpu::attention(stream, {half, {}, half, half, half, shape, {}}), Error);
  shape.num_kv_heads = 2;
  EXPECT_THROW(cpu::attention(stream, {y, {}, x, x, x, shape, {}}), Error);
  shape.num_kv_heads = 3, shape.scale = 0;
  EXPECT_THROW(cpu::attention(stream, {y, {}, x, x, x, shape, {}}), Error);
}

}  // namespace
}  // namespace weft
