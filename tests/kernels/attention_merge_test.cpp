// Attention in parts: merged partial results and summed gradients equal one call over all keys, dropout included.
#include "workbench.h"

namespace weft {
namespace {

struct MergePath {
  const char* name;
  const Kernels& (*table)();
  DType dtype;
  double tolerance;  // of results of order 1
};

class AttentionMergeTest : public testing::TestWithParam<MergePath> {
 protected:
  static constexpr int64_t kQueries = 50, kKeys = 70;
  static constexpr int kHeads = 4, kKvHeads = 2, kDim = 16;

  AttentionShape shape(const std::vector<AttentionSpan>& spans) const {
    return {.num_heads = kHeads,
            .num_kv_heads = kKvHeads,
            .head_dim = kDim,
            .spans = spans.data(),
            .num_spans = int(spans.size()),
            .scale = 0.25f};
  }
  Tensor like(const Tensor& x) { return w.empty(x.dtype(), x.shape()); }
  Tensor wide(Shape shape) { return w.empty(dtype == DType::f64 ? DType::f64 : DType::f32, shape); }
  void expect_same(std::string_view name, const Tensor& got, const Tensor& want) {
    expect_near(name, w.values(got), w.values(want), GetParam().tolerance);
  }
  void forward(const std::vector<AttentionSpan>& spans, const Tensor& to, const Tensor& to_lse) {
    kernels.attention(w.stream,
                      {.y = to, .lse = to_lse, .q = q, .k = k, .v = v, .shape = shape(spans), .dropout = dropout});
  }
  void backward(const std::vector<AttentionSpan>& spans, const Tensor& dq, const Tensor& dk, const Tensor& dv) {
    AttentionBackwardArgs args{.dq = dq, .dk = dk, .dv = dv, .dy = dy, .y = y, .lse = lse, .q = q, .k = k};
    args.v = v, args.shape = shape(spans), args.dropout = dropout;
    kernels.attention_backward(w.stream, args);
  }

  // Query row i sees i + 21 keys. Cut at key 33, rows from 12 on see keys of both parts, row 12 none of the second.
  const std::vector<AttentionSpan> whole{{0, 50, 0, 70, true, 1000, 7}};
  const std::vector<AttentionSpan> first{{0, 12, 0, 32, true, 1000, 7}, {12, 50, 0, 33, false, 1012, 7}};
  const std::vector<AttentionSpan> second{{12, 50, 33, 70, true, 1012, 40}};
  const DropoutKey dropout{.p = 0.2f, .seed = 4, .stream = 9};

  Workbench w{2};
  const Kernels& kernels = GetParam().table();
  const DType dtype = GetParam().dtype;
  const Tensor q = w.random(dtype, {kQueries, kHeads, kDim}, "q"), k = w.random(dtype, {kKeys, kKvHeads, kDim}, "k");
  const Tensor v = w.random(dtype, {kKeys, kKvHeads, kDim}, "v"), dy = w.random(dtype, q.shape(), "dy");
  const Tensor y = like(q), lse = wide({kHeads, kQueries});
};

INSTANTIATE_TEST_SUITE_P(Paths, AttentionMergeTest,
                         testing::Values(MergePath{"reference_f64", reference_kernels, DType::f64, 1e-13},
                                         MergePath{"reference_bf16", reference_kernels, DType::bf16, 3e-2},
                                         MergePath{"cpu_f32", cpu_kernels, DType::f32, 1e-5},
                                         MergePath{"cpu_bf16", cpu_kernels, DType::bf16, 5e-2},
                                         MergePath{"cpu_f16", cpu_kernels, DType::f16, 6e-3}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(AttentionMergeTest, PartsMakeTheWhole) {
  forward(whole, y, lse);
  const Tensor acc = wide(q.shape()), acc_lse = wide({kHeads, kQueries}), part = like(q), part_lse = like(acc_lse);
  kernels.fill(w.stream, acc, 0);
  kernels.fill(w.stream, acc_lse, -HUGE_VALF);
  for (const auto* spans : {&second, &first}) {
    forward(*spans, part, part_lse);
    kernels.attention_merge(w.stream, acc, acc_lse, part, part_lse);
  }
  expect_same("y", acc, y);
  expect_same("lse", acc_lse, lse);
}

TEST_P(AttentionMergeTest, GradientsOfPartsAddUp) {
  forward(whole, y, lse);
  const std::array<Tensor, 3> want{like(q), like(k), like(v)}, part{like(q), like(k), like(v)};
  backward(whole, want[0], want[1], want[2]);
  const std::array<Tensor, 3> sum{wide(q.shape()), wide(k.shape()), wide(v.shape())};
  for (const Tensor& t : sum) kernels.fill(w.stream, t, 0);
  for (const auto* spans : {&first, &second}) {
    backward(*spans, part[0], part[1], part[2]);
    for (size_t i = 0; i < 3; ++i) kernels.accumulate(w.stream, sum[i], part[i]);
  }
  expect_same("dq", sum[0], want[0]);
  expect_same("dk", sum[1], want[1]);
  expect_same("dv", sum[2], want[2]);
}

// Heads of one layer on two ranks drop the same elements as on one.
TEST_P(AttentionMergeTest, SomeOfTheHeadsAreThoseOfAll) {
  forward(whole, y, lse);
  const auto heads_of = [&](const Tensor& t, int64_t first_head, int64_t count) {
    const Tensor all = w.copy(t), some = w.empty(dtype, {t.dim(0), count, kDim});
    const size_t row = size_t(count * kDim) * size_of(dtype), step = t.bytes() / size_t(t.dim(0));
    for (int64_t i = 0; i < t.dim(0); ++i) {
      std::memcpy(
          static_cast<std::byte*>(some.raw()) + size_t(i) * row,
          static_cast<const std::byte*>(t.raw()) + size_t(i) * step + size_t(first_head * kDim) * size_of(dtype),
          row);
    }
    return some;
  };
  AttentionShape half = shape(whole);
  half.num_heads = 2, half.num_kv_heads = 1, half.first_head = 2, half.total_heads = kHeads;
  const Tensor part = w.empty(dtype, {kQueries, 2, kDim});
  kernels.attention(w.stream, {.y = part,
                               .lse = {},
                               .q = heads_of(q, 2, 2),
                               .k = heads_of(k, 1, 1),
                               .v = heads_of(v, 1, 1),
                               .shape = half,
                               .dropout = dropout});
  EXPECT_EQ(w.values(part), w.values(heads_of(y, 2, 2)));
}

TEST_P(AttentionMergeTest, NothingMayBeOnEitherSide) {
  const double none = -HUGE_VAL;
  const DType lse_type = dtype == DType::f64 ? DType::f64 : DType::f32;
  const Tensor acc = w.of(lse_type, {4, 1, 1}, {0, 2, 0, 3}), acc_lse = w.of(lse_type, {1, 4}, {none, 1, none, 0});
  const Tensor part = w.of(dtype, {4, 1, 1}, {0, 0, 5, 1}), part_lse = w.of(lse_type, {1, 4}, {none, none, 2, 0});
  kernels.attention_merge(w.stream, acc, acc_lse, part, part_lse);
  expect_near("y", w.values(acc), std::vector<double>{0, 2, 5, 2}, 1e-6);
  EXPECT_EQ(w.values(acc_lse)[0], none);
  EXPECT_EQ(w.values(acc_lse)[1], 1);
  EXPECT_EQ(w.values(acc_lse)[2], 2);
  EXPECT_NEAR(w.values(acc_lse)[3], std::log(2.0), 1e-6);
}

}  // namespace
}  // namespace weft
