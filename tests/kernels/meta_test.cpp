// Meta kernels: FLOPs and bytes of each op equal the formula, for tensors without data.
#include "support/attention_spans.h"
#include "workbench.h"

namespace weft {
namespace {

const Kernels& meta = meta_kernels();

class MetaTest : public testing::Test {
 protected:
  Tensor f32(Shape shape) { return w.empty(DType::f32, shape); }
  Tensor bf16(Shape shape) { return w.empty(DType::bf16, shape); }
  void expect_cost(std::string_view op, double flops, double bytes) {
    EXPECT_EQ(w.stream.cost.flops, flops) << op;
    EXPECT_EQ(w.stream.cost.bytes, bytes) << op;
    w.stream.cost = {};
  }

  Workbench w{1, Device::meta};
  Stream& stream = w.stream;
};

TEST_F(MetaTest, TensorsHaveNoData) { EXPECT_EQ(f32({1000, 1000, 1000, 1000}).raw(), nullptr); }

TEST_F(MetaTest, Matmul) {
  constexpr double kM = 8, kN = 6, kK = 5;
  const Tensor y = bf16({8, 6}), a = bf16({8, 5}), b = bf16({5, 6});
  const double flops = 2 * kM * kN * kK, bytes = 2 * (kM * kN + kM * kK + kK * kN);
  meta.matmul(stream, {.y = y, .a = a, .b = b});
  expect_cost("plain", flops, bytes);
  meta.matmul(stream, {.y = y, .a = bf16({5, 8}), .b = b, .transpose_a = true});
  expect_cost("transpose_a", flops, bytes);
  meta.matmul(stream, {.y = y, .a = a, .b = bf16({6, 5}), .transpose_b = true});
  expect_cost("transpose_b", flops, bytes);
  meta.matmul(stream, {.y = f32({8, 6}), .a = a, .b = b, .accumulate = true});
  expect_cost("accumulate", flops, 2 * 4 * kM * kN + 2 * (kM * kK + kK * kN));

  // Operands are read, written as they were rounded, and read again.
  meta.matmul(stream, {.y = y, .a = a, .b = b, .float8 = true});
  expect_cost("float8", flops + 6 * (kM * kK + kK * kN), bytes + 2 * 2 * (kM * kK + kK * kN));

  using Kind = Epilogue::Kind;
  const double element_bytes = 2 * kM * kN;
  meta.matmul(stream, {.y = y, .a = a, .b = b, .epilogue = {.bias = bf16({6})}});
  expect_cost("bias", flops + kM * kN, bytes + 2 * kN);
  meta.matmul(stream, {.y = y, .a = a, .b = b, .epilogue = {.kind = Kind::activate, .act = y}});
  expect_cost("activate", flops + 8 * kM * kN, bytes + element_bytes);
  meta.matmul(stream, {.y = y, .a = a, .b = b, .epilogue = {.kind = Kind::gated, .act = y, .gate = y}});
  expect_cost("gated", flops + 9 * kM * kN, bytes + 2 * element_bytes);
  meta.matmul(stream, {.y = y, .a = a, .b = b, .epilogue = {.kind = Kind::activate_backward, .pre = y}});
  expect_cost("activate_backward", flops + 13 * kM * kN, bytes + element_bytes);
  meta.matmul(stream,
              {.y = y, .a = a, .b = b, .epilogue = {.kind = Kind::gated_backward, .gate = y, .up = y, .dgate = y}});
  expect_cost("gated_backward", flops + 23 * kM * kN, bytes + 3 * element_bytes);
}

struct CountedAttention {
  std::string name;
  std::vector<int32_t> q_start, k_start;
  bool causal;
  double pairs;
  int window = 0;
};

class MetaAttentionTest : public MetaTest, public testing::WithParamInterface<CountedAttention> {};
INSTANTIATE_TEST_SUITE_P(Cases, MetaAttentionTest,
                         testing::Values(CountedAttention{"Full", {0, 4}, {0, 4}, false, 16},
                                         CountedAttention{"Causal", {0, 4}, {0, 4}, true, 10},
                                         CountedAttention{"Documents", {0, 1, 4}, {0, 1, 4}, true, 1 + 6},
                                         CountedAttention{"Decode", {0, 1, 2}, {0, 9, 11}, true, 9 + 2},
                                         CountedAttention{"Chunk", {0, 3}, {0, 7}, true, 5 + 6 + 7},
                                         CountedAttention{"FewKeys", {0, 4}, {0, 2}, true, 1 + 2},
                                         CountedAttention{"Window", {0, 5}, {0, 7}, true, 5 * 3, 3}),
                         [](const auto& test) { return test.param.name; });

TEST_P(MetaAttentionTest, CountsVisiblePairsOnce) {
  constexpr int kHeads = 6, kKvHeads = 2, kDim = 8;
  const CountedAttention& c = GetParam();
  const int64_t queries = c.q_start.back(), keys = c.k_start.back();
  const Tensor q = bf16({queries, kHeads, kDim}), k = bf16({keys + 5, kKvHeads, kDim}), lse = f32({kHeads, queries});
  const std::vector<AttentionSpan> spans = spans_of(c.q_start, c.k_start, c.causal);
  const AttentionShape shape{.num_heads = kHeads,
                             .num_kv_heads = kKvHeads,
                             .head_dim = kDim,
                             .spans = spans.data(),
                             .num_spans = int(spans.size()),
                             .scale = 1,
                             .window = c.window};
  const double q_bytes = 2.0 * double(queries) * kHeads * kDim, lse_bytes = 4.0 * double(queries) * kHeads;
  const double read_k_bytes = 2.0 * double(keys) * kKvHeads * kDim, dk_bytes = double(k.bytes());
  meta.attention(stream, {.y = q, .lse = lse, .q = q, .k = k, .v = k, .shape = shape});
  expect_cost("forward", c.pairs * kHeads * (4 * kDim + 5), 2 * q_bytes + lse_bytes + 2 * read_k_bytes);
  meta.attention_backward(
      stream, {.dq = q, .dk = k, .dv = k, .dy = q, .y = q, .lse = lse, .q = q, .k = k, .v = k, .shape = shape});
  expect_cost("backward", c.pairs * kHeads * (10 * kDim + 6) + 2.0 * double(q.numel()),
              4 * q_bytes + lse_bytes + 2 * read_k_bytes + 2 * dk_bytes);
}

TEST_F(MetaTest, Norms) {
  constexpr double kCount = 3 * 8;
  const Tensor x = bf16({3, 8}), weight = bf16({8}), rows = f32({3}), dweight = f32({8});
  meta.norm(stream, {.y = x, .rstd = rows, .x = x, .weight = weight});
  expect_cost("rms", 4 * kCount, 2 * 2 * kCount + 4 * 3 + 2 * 8);
  meta.norm(stream, {.y = x, .sum = x, .rstd = rows, .x = x, .residual = x, .weight = weight});
  expect_cost("rms with residual", 5 * kCount, 4 * 2 * kCount + 4 * 3 + 2 * 8);
  meta.norm(stream,
            {.kind = NormKind::layer, .y = x, .mean = rows, .rstd = rows, .x = x, .weight = weight, .bias = weight});
  expect_cost("layer", 7 * kCount, 2 * 2 * kCount + 2 * 4 * 3 + 2 * 2 * 8);
  NormBackwardArgs back{.dx = x, .dweight = dweight, .accumulate = false, .dy = x, .x = x};
  back.rstd = rows, back.weight = weight;
  meta.norm_backward(stream, back);
  expect_cost("rms backward", 9 * kCount, 3 * 2 * kCount + 4 * 3 + 2 * 8 + 4 * 8);
  back.accumulate = true;
  back.dsum = x;
  meta.norm_backward(stream, back);
  expect_cost("rms backward, accumulating", 10 * kCount, 4 * 2 * kCount + 4 * 3 + 2 * 8 + 2 * 4 * 8);
  back.kind = NormKind::layer;
  back.mean = rows;
  meta.norm_backward(stream, back);
  expect_cost("layer backward", 13 * kCount, 4 * 2 * kCount + 2 * 4 * 3 + 2 * 8 + 2 * 4 * 8);
}

TEST_F(MetaTest, TokensAndLoss) {
  const std::vector<int32_t> ids{0, 9, 0};
  meta.embedding(stream, bf16({3, 4}), bf16({10, 4}), ids.data(), {}, nullptr);
  expect_cost("embedding", 0, 2 * 2 * 12);
  meta.embedding(stream, bf16({3, 4}), bf16({10, 4}), ids.data(), bf16({10, 4}), ids.data());
  expect_cost("embedding with positions", 12, 3 * 2 * 12);
  meta.embedding_backward(stream, f32({10, 4}), bf16({3, 4}), ids.data());
  expect_cost("embedding_backward", 12, 2 * 12 + 2 * 4 * 12);
  meta.cross_entropy(stream, f32({3}), bf16({3, 10}), ids.data(), 0);
  expect_cost("cross_entropy", 5 * 30, 4 * 3 + 2 * 30);
  meta.cross_entropy(stream, f32({3}), bf16({3, 10}), ids.data(), 1);
  expect_cost("cross_entropy with gradient", 7 * 30, 4 * 3 + 2 * 2 * 30);
  meta.cross_entropy_stats(stream, f32({3, 3}), bf16({3, 10}), ids.data(), 0);
  expect_cost("cross_entropy_stats", 5 * 30, 4 * 9 + 2 * 30);
  meta.cross_entropy_gradient(stream, bf16({3, 10}), f32({3}), {}, ids.data(), 0, 1);
  expect_cost("cross_entropy_gradient", 3 * 30, 4 * 3 + 2 * 2 * 30);
  meta.rope(stream, std::array{RopeArgs{bf16({3, 5, 8}), f32({10, 3}), f32({10, 3}), ids.data()}});
  expect_cost("rope", 3 * 3 * 5 * 6, 2 * 2 * 3 * 5 * 6 + 2 * 4 * 3 * 3);
}

TEST_F(MetaTest, ElementWise) {
  const Tensor x = bf16({3, 4}), sums = f32({4}), state = f32({7});
  meta.activation(stream, x, x, Activation::gelu);
  expect_cost("activation", 8 * 12, 2 * 24);
  meta.activation_backward(stream, x, x, x, Activation::gelu);
  expect_cost("activation_backward", 13 * 12, 3 * 24);
  meta.gated_activation(stream, x, x, x, Activation::silu);
  expect_cost("gated_activation", 9 * 12, 3 * 24);
  meta.gated_activation_backward(stream, x, x, x, x, x, Activation::silu);
  expect_cost("gated_activation_backward", 23 * 12, 5 * 24);
  meta.dropout(stream, x, x, {.p = 0.5f});
  expect_cost("dropout", 2 * 12, 2 * 24);
  meta.add(stream, x, x, x);
  expect_cost("add", 12, 3 * 24);
  meta.accumulate(stream, f32({3, 4}), x);
  expect_cost("accumulate", 12, 2 * 48 + 24);
  meta.attention_merge(stream, f32({5, 2, 3}), f32({2, 5}), bf16({5, 2, 3}), f32({2, 5}));
  expect_cost("attention_merge", 3 * 30 + 8 * 10, 2 * 120 + 2 * 40 + 60 + 40);
  const Tensor y = bf16({5, 2, 3}), lse = f32({2, 5}), sinks = bf16({2});
  meta.attention_sinks(stream, y, lse, sinks);
  expect_cost("attention_sinks", 30 + 8 * 10, 2 * 60 + 2 * 40 + 4);
  meta.attention_sinks_backward(stream, f32({2}), y, y, lse, sinks);
  expect_cost("attention_sinks_backward", 2 * 30 + 3 * 10, 2 * 8 + 2 * 60 + 40 + 4);
  meta.scale(stream, x, x, 2);
  expect_cost("scale", 12, 2 * 24);
  meta.convert(stream, f32({3, 4}), x);
  expect_cost("convert", 0, 48 + 24);
  meta.fill(stream, x, 0);
  expect_cost("fill", 0, 24);
  meta.sum_rows(stream, sums, x, false);
  expect_cost("sum_rows", 12, 24 + 16);
  meta.sum_rows(stream, sums, x, true);
  expect_cost("sum_rows, accumulating", 12, 24 + 32);
  EXPECT_EQ(meta.sum_of_squares(stream, {&x, 1}), 0);
  expect_cost("sum_of_squares", 24, 24);
  meta.pack_matmul_b(stream, x, x, false);
  expect_cost("pack_matmul_b", 0, 2 * 24);
  EXPECT_EQ(meta.packed_matmul_b_bytes(DType::bf16, 64, 64, false), 0u);
  meta.adamw(stream, {.master = state, .value = w.empty(DType::f16, {7}), .m = state, .v = state, .grad = state});
  expect_cost("adamw", 15 * 7, 7 * 4 * 7 + 2 * 7);
  const Tensor lower = w.empty(DType::u16, {7});
  meta.adamw(stream, {.master = lower, .value = bf16({7}), .m = state, .v = state, .grad = bf16({7})});
  expect_cost("adamw of halves", 15 * 7, 4 * 4 * 7 + 5 * 2 * 7);
  meta.split_masters(stream, bf16({7}), lower, state);
  expect_cost("split_masters", 0, 2 * 4 * 7);
  meta.join_masters(stream, state, bf16({7}), lower);
  expect_cost("join_masters", 0, 2 * 4 * 7);
  const Tensor codes = w.empty(DType::u8, {7}), scale = f32({1}), rows = f32({2}), cols = f32({5});
  meta.adamw8(stream, {.adamw = {.master = lower, .value = bf16({7}), .grad = state},
                       .m = codes,
                       .v = codes,
                       .m_scale = scale,
                       .v_scale = scale});
  expect_cost("adamw8", 37 * 7, 4 * 2 * 7 + 4 * 7 + 4 * 7 + 4 * 4);
  meta.sgd(stream, {.master = state, .value = w.empty(DType::f16, {7}), .m = state, .grad = state});
  expect_cost("sgd", 7 * 7, 5 * 4 * 7 + 2 * 7);
  meta.lion(stream, {.master = state, .value = {}, .m = state, .grad = state});
  expect_cost("lion", 12 * 7, 5 * 4 * 7);
  meta.encode_blocks(stream, codes, scale, state, true);
  expect_cost("encode_blocks", 10 * 7, 7 + 4 + 4 * 7);
  meta.decode_blocks(stream, state, codes, scale, true);
  expect_cost("decode_blocks", 7, 7 + 4 + 4 * 7);
  const MatrixPiece piece{.x = state, .scale = 1, .first = 3, .rows = rows, .cols = cols};
  meta.add_factor_sums(stream, piece);
  expect_cost("add_factor_sums", 4 * 7, 4 * 7 + 2 * 4 * (2 + 5));
  meta.factor_moment(stream, {.moment = rows, .sums = rows});
  expect_cost("factor_moment", 6 * 2, 4 * 4 * 2);
  EXPECT_EQ(meta.factored_squares(stream, piece), 0);
  expect_cost("factored_squares", 5 * 7, 4 * 7 + 4 * (2 + 5));
  meta.adafactor(stream, {.master = state, .value = {}, .grad = piece});
  expect_cost("adafactor", 6 * 7, 3 * 4 * 7 + 4 * (2 + 5));
}

TEST_F(MetaTest, ChecksShapes) { EXPECT_THROW(meta.add(stream, f32({2}), f32({2}), f32({3})), Error); }

}  // namespace
}  // namespace weft
