// Reference kernels: every backward equals central differences of its forward, in f64.
#include "support/attention_spans.h"
#include "workbench.h"

namespace weft {
namespace {

constexpr DType kType = DType::f64;
// ---- attention ----
struct AttentionGradient {
  std::string name;
  int num_heads, num_kv_heads, head_dim;
  std::vector<int32_t> q_start, k_start;
  bool causal;
  float dropout;
  int window = 0, value_dim = 0;
  float softcap = 0;
};

// All keys but every third, others for each row.
Tensor two_of_three_keys(Workbench& w, int64_t queries, int64_t keys) {
  const Tensor bits = w.empty(DType::i32, {queries, (keys + 31) / 32});
  const Tensor selected = w.empty(DType::i32, {queries, keys});
  for (int64_t i = 0; i < selected.numel(); ++i)
    selected.data<int32_t>()[i] = (i % keys + i / keys) % 3 != 0 ? int32_t(i % keys) : -1;
  reference_kernels().mark_keys(w.stream, bits, selected);
  return bits;
}

void expect_attention_gradients(const AttentionGradient& c, bool has_bias, bool selects = false) {
  Workbench w;
  const int64_t queries = c.q_start.back(), keys = c.k_start.back() + 1;  // the last key row belongs to no sequence
  const Tensor q = w.random(kType, {queries, c.num_heads, c.head_dim}, "q");
  const Tensor k = w.random(kType, {keys, c.num_kv_heads, c.head_dim}, "k");
  const int64_t value_dim = c.value_dim ? c.value_dim : c.head_dim;
  const Tensor v = w.random(kType, {keys, c.num_kv_heads, value_dim}, "v");
  const Tensor dy = w.random(kType, {queries, c.num_heads, value_dim}, "dy");
  const Tensor y = w.empty(kType, dy.shape()), lse = w.empty(kType, {c.num_heads, queries});
  const std::vector<AttentionSpan> spans = spans_of(c.q_start, c.k_start, c.causal, 100);
  const AttentionShape shape{.num_heads = c.num_heads,
                             .num_kv_heads = c.num_kv_heads,
                             .head_dim = c.head_dim,
                             .spans = spans.data(),
                             .num_spans = int(spans.size()),
                             .scale = 0.6f,
                             .softcap = c.softcap,
                             .window = c.window,
                             .value_dim = c.value_dim};
  const Tensor bias = has_bias ? w.random(kType, {c.num_heads, 7}, "bias") : Tensor{};
  const Tensor dbias = has_bias ? w.empty(kType, bias.shape()) : Tensor{};
  const Tensor key_bits = selects ? two_of_three_keys(w, queries, keys) : Tensor{};
  const DropoutKey dropout{.p = c.dropout, .seed = 3, .stream = 5};
  const auto forward = [&] {
    reference_kernels().attention(w.stream, {.y = y,
                                             .lse = lse,
                                             .q = q,
                                             .k = k,
                                             .v = v,
                                             .shape = shape,
                                             .dropout = dropout,
                                             .bias = bias,
                                             .key_bits = key_bits});
    return dot(y, dy);
  };
  forward();
  const Tensor dq = w.empty(kType, q.shape()), dk = w.empty(kType, k.shape()), dv = w.empty(kType, v.shape());
  reference_kernels().attention_backward(w.stream, {.dq = dq,
                                                    .dk = dk,
                                                    .dv = dv,
                                                    .dy = dy,
                                                    .y = w.copy(y),
                                                    .lse = w.copy(lse),
                                                    .q = q,
                                                    .k = k,
                                                    .v = v,
                                                    .shape = shape,
                                                    .dropout = dropout,
                                                    .bias = bias,
                                                    .dbias = dbias,
                                                    .key_bits = key_bits});
  expect_gradient("dq", q, dq, forward);
  expect_gradient("dk", k, dk, forward);
  expect_gradient("dv", v, dv, forward);
  if (has_bias) expect_gradient("dbias", bias, dbias, forward);
}

class AttentionGradientTest : public testing::TestWithParam<AttentionGradient> {};

TEST_P(AttentionGradientTest, EqualsDifferences) { expect_attention_gradients(GetParam(), false); }
TEST_P(AttentionGradientTest, EqualsDifferencesWithABiasByDistance) { expect_attention_gradients(GetParam(), true); }
TEST_P(AttentionGradientTest, EqualsDifferencesWithSelectedKeys) {
  expect_attention_gradients(GetParam(), false, true);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionGradientTest,
    testing::Values(AttentionGradient{"OneHeadFull", 1, 1, 4, {0, 5}, {0, 5}, false, 0},
                    AttentionGradient{"Causal", 2, 2, 3, {0, 6}, {0, 6}, true, 0},
                    AttentionGradient{"SharedKeys", 4, 2, 4, {0, 5}, {0, 5}, true, 0},
                    AttentionGradient{"OneKeyHead", 3, 1, 2, {0, 4}, {0, 4}, true, 0},
                    AttentionGradient{"Documents", 2, 1, 4, {0, 3, 3, 4, 9}, {0, 3, 3, 4, 9}, true, 0},
                    AttentionGradient{"DocumentsFull", 2, 1, 4, {0, 3, 4, 8}, {0, 3, 4, 8}, false, 0},
                    AttentionGradient{"MoreKeysThanQueries", 2, 1, 4, {0, 2, 4}, {0, 5, 8}, true, 0},
                    AttentionGradient{"MoreQueriesThanKeys", 2, 2, 4, {0, 5}, {0, 3}, true, 0},
                    AttentionGradient{"CrossFull", 2, 2, 4, {0, 2, 5}, {0, 3, 4}, false, 0},
                    AttentionGradient{"Dropout", 4, 2, 4, {0, 3, 7}, {0, 3, 7}, true, 0.3f},
                    AttentionGradient{"Window", 2, 1, 4, {0, 6, 9}, {0, 8, 9}, true, 0, 3},
                    AttentionGradient{"WindowDropout", 2, 1, 4, {0, 7}, {0, 7}, true, 0.3f, 3},
                    AttentionGradient{"Cap", 2, 1, 4, {0, 6}, {0, 6}, true, 0, 0, 0, 0.8f},
                    AttentionGradient{"CapWindow", 2, 1, 4, {0, 6}, {0, 6}, true, 0, 2, 0, 1.3f},
                    AttentionGradient{"NarrowValues", 2, 1, 4, {0, 6}, {0, 6}, true, 0, 0, 3},
                    AttentionGradient{"WideValues", 2, 2, 3, {0, 6}, {0, 6}, true, 0, 4, 5, 2}),
    [](const auto& test) { return test.param.name; });

// ---- norms ----
struct NormGradient {
  std::string name;
  NormKind kind;
  bool has_residual, has_bias;
  float weight_offset = 0;
};

class NormGradientTest : public testing::TestWithParam<NormGradient> {};

TEST_P(NormGradientTest, EqualsDifferences) {
  const NormGradient& c = GetParam();
  Workbench w;
  const Shape shape{3, 7};
  NormArgs args{.kind = c.kind, .y = w.empty(kType, shape), .rstd = w.empty(kType, {3}), .eps = 1e-2f};
  args.weight_offset = c.weight_offset;
  args.x = w.random(kType, shape, "x");
  args.weight = w.random(kType, {7}, "weight");
  if (c.kind == NormKind::layer) args.mean = w.empty(kType, {3});
  if (c.has_residual) args.residual = w.random(kType, shape, "residual"), args.sum = w.empty(kType, shape);
  if (c.has_bias) args.bias = w.random(kType, {7}, "bias");
  const Tensor dy = w.random(kType, shape, "dy"), dsum = w.random(kType, shape, "dsum");
  const auto forward = [&] {
    reference_kernels().norm(w.stream, args);
    return dot(args.y, dy) + (c.has_residual ? dot(args.sum, dsum) : 0);
  };
  forward();
  NormBackwardArgs back{.kind = c.kind, .accumulate = false, .dy = dy, .weight = args.weight};
  back.dx = w.empty(kType, shape);
  back.dweight = w.empty(kType, {7});
  if (c.has_bias) back.dbias = w.empty(kType, {7});
  if (c.has_residual) back.dsum = dsum;
  back.x = w.copy(c.has_residual ? args.sum : args.x);
  back.rstd = w.copy(args.rstd);
  if (args.mean) back.mean = w.copy(args.mean);
  back.weight_offset = c.weight_offset;
  reference_kernels().norm_backward(w.stream, back);
  expect_gradient("dx", args.x, back.dx, forward);
  if (c.has_residual) expect_gradient("dresidual", args.residual, back.dx, forward);
  expect_gradient("dweight", args.weight, back.dweight, forward);
  if (c.has_bias) expect_gradient("dbias", args.bias, back.dbias, forward);
}

TEST_P(NormGradientTest, AccumulatesAndWorksInPlace) {
  const NormGradient& c = GetParam();
  Workbench w;
  const Shape shape{3, 7};
  NormBackwardArgs args{.kind = c.kind, .accumulate = false, .dsum = w.random(kType, shape, "dsum")};
  args.dx = w.empty(kType, shape), args.dy = w.random(kType, shape, "dy"), args.x = w.random(kType, shape, "x");
  args.mean = w.random(kType, {3}, "mean"), args.rstd = w.random(kType, {3}, "rstd");
  args.weight = w.random(kType, {7}, "weight");
  args.dweight = w.empty(kType, {7}), args.dbias = w.empty(kType, {7});
  reference_kernels().norm_backward(w.stream, args);
  const std::vector<double> dx = w.values(args.dx), dweight = w.values(args.dweight), dbias = w.values(args.dbias);
  args.accumulate = true;
  args.dx = args.dsum;
  reference_kernels().norm_backward(w.stream, args);
  expect_near("dx in place of dsum", w.values(args.dx), dx, 1e-14);
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_NEAR(args.dweight.data<double>()[i], 2 * dweight[i], 1e-13);
    EXPECT_NEAR(args.dbias.data<double>()[i], 2 * dbias[i], 1e-13);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, NormGradientTest,
                         testing::Values(NormGradient{"Rms", NormKind::rms, false, false},
                                         NormGradient{"RmsResidual", NormKind::rms, true, false},
                                         NormGradient{"RmsBias", NormKind::rms, false, true},
                                         NormGradient{"Layer", NormKind::layer, false, true},
                                         NormGradient{"LayerResidual", NormKind::layer, true, true},
                                         NormGradient{"LayerNoBias", NormKind::layer, false, false},
                                         NormGradient{"RmsOffset", NormKind::rms, true, false, 1},
                                         NormGradient{"LayerOffset", NormKind::layer, false, true, 1}),
                         [](const auto& test) { return test.param.name; });

// ---- activations, and the products that end in them ----
class ActivationGradientTest : public testing::TestWithParam<Activation> {};
INSTANTIATE_TEST_SUITE_P(All, ActivationGradientTest,
                         testing::Values(Activation::gelu, Activation::gelu_tanh, Activation::relu,
                                         Activation::relu_squared, Activation::silu, Activation::gelu_quick,
                                         Activation::swiglu_oai, Activation::swiglu_clipped, Activation::sigmoid,
                                         Activation::tanh, Activation::identity),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(ActivationGradientTest, EqualsDifferences) {
  Workbench w;
  const Tensor x = w.random(kType, {4, 9}, "x"), dy = w.random(kType, {4, 9}, "dy");
  const Tensor y = w.empty(kType, {4, 9}), dx = w.empty(kType, {4, 9});
  reference_kernels().activation_backward(w.stream, dx, dy, x, GetParam());
  expect_gradient("dx", x, dx, [&] {
    reference_kernels().activation(w.stream, y, x, GetParam());
    return dot(y, dy);
  });
}

TEST(XieluGradientTest, EqualsDifferences) {
  Workbench w;
  const Tensor x = w.random(kType, {4, 9}, "x"), dy = w.random(kType, {4, 9}, "dy");
  const Tensor positive = w.random(kType, {1}, "positive"), negative = w.random(kType, {1}, "negative");
  const Tensor y = w.empty(kType, {4, 9}), dx = w.empty(kType, {4, 9});
  const Tensor of_rows[] = {w.empty(kType, {4, 1}), w.empty(kType, {4, 1})};
  const Tensor dalphas[] = {w.empty(kType, {1}), w.empty(kType, {1})};
  reference_kernels().xielu_backward(w.stream, dx, of_rows[0], of_rows[1], dy, x, positive, negative);
  for (int i : {0, 1}) reference_kernels().sum_rows(w.stream, dalphas[i], of_rows[i], false);
  const auto forward = [&] {
    reference_kernels().xielu(w.stream, y, x, positive, negative);
    return dot(y, dy);
  };
  expect_gradient("dx", x, dx, forward);
  expect_gradient("dpositive", positive, dalphas[0], forward);
  expect_gradient("dnegative", negative, dalphas[1], forward);
}

TEST(SoftcapGradientTest, EqualsDifferences) {
  Workbench w;
  const Tensor x = w.random(kType, {4, 9}, "x"), dy = w.random(kType, {4, 9}, "dy");
  const Tensor y = w.empty(kType, {4, 9}), dx = w.empty(kType, {4, 9});
  reference_kernels().softcap(w.stream, y, x, 0.7f);
  reference_kernels().softcap_backward(w.stream, dx, dy, w.copy(y), 0.7f);
  expect_gradient("dx", x, dx, [&] {
    reference_kernels().softcap(w.stream, y, x, 0.7f);
    return dot(y, dy);
  });
}

// Some of the values are beyond the limits, which have no slope.
class HeldValuesTest : public testing::TestWithParam<Activation> {};
INSTANTIATE_TEST_SUITE_P(Activations, HeldValuesTest,
                         testing::Values(Activation::swiglu_oai, Activation::swiglu_clipped),
                         [](const auto& test) { return std::string(name_of(test.param)); });

TEST_P(HeldValuesTest, HaveNoGradients) {
  Workbench w;
  const double most = GetParam() == Activation::swiglu_oai ? 7 : 10;
  const Tensor gate = w.of(kType, {5}, {-most - 2, most - 0.5, most + 0.5, 1, 1});
  const Tensor up = w.of(kType, {5}, {1, 0.5 - most, 2, -0.5 - most, most + 1});
  const Tensor dy = w.random(kType, {5}, "dy"), y = w.empty(kType, {5});
  const Tensor dgate = w.empty(kType, {5}), dup = w.empty(kType, {5});
  reference_kernels().gated_activation_backward(w.stream, dgate, dup, dy, gate, up, GetParam());
  const auto forward = [&] {
    reference_kernels().gated_activation(w.stream, y, gate, up, GetParam());
    return dot(y, dy);
  };
  expect_gradient("dgate", gate, dgate, forward);
  expect_gradient("dup", up, dup, forward);
  EXPECT_EQ(w.values(dgate)[2], 0);
  EXPECT_EQ(w.values(dup)[3], 0);
  EXPECT_EQ(w.values(dup)[4], 0);
}

// Of residual streams: what is read of them, by weights that depend on them, what is written to them, and how they
// are mixed, in so many steps.
class StreamsGradientTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(MixSteps, StreamsGradientTest, testing::Values(0, 1, 4));

TEST_P(StreamsGradientTest, EqualsDifferences) {
  Workbench w;
  constexpr int64_t kTokens = 2, kStreams = 3, kHidden = 4;
  const int steps = GetParam();
  const int64_t weights = (2 + (steps > 0 ? kStreams : 0)) * kStreams, kinds = steps > 0 ? 3 : 2;
  const StreamRule rule{.magnitude = 1.5f, .eps = 0.01f, .gate_eps = 0.02f, .norm_eps = 0.1f, .mix_steps = steps};
  const Tensor x = w.random(kType, {kTokens, kStreams * kHidden}, "x");
  const Tensor products = w.random(kType, {kTokens, weights}, "products");
  const Tensor base = w.random(kType, {weights}, "base"), scale = w.random(kType, {kinds}, "scale");
  const Tensor y = w.empty(kType, {kTokens, kHidden}), gates = w.empty(kType, {kTokens, kStreams});
  const Tensor mix = steps > 0 ? w.empty(kType, {kTokens, kStreams * kStreams}) : Tensor();
  const Tensor rstd = w.empty(kType, {kTokens}), sum = w.empty(kType, x.shape());
  const Tensor dsum = w.random(kType, x.shape(), "dsum");
  const auto forward = [&] {
    reference_kernels().read_streams(w.stream, {y, gates, mix, rstd, x, products, base, scale, rule});
    reference_kernels().write_streams(w.stream, {sum, x, y, gates, mix});
    return dot(sum, dsum);
  };
  forward();
  const Tensor dy = w.empty(kType, y.shape()), dgates = w.empty(kType, gates.shape());
  const Tensor around = mix ? w.empty(kType, x.shape()) : dsum;
  const Tensor dmix = mix ? w.empty(kType, mix.shape()) : Tensor();
  reference_kernels().write_streams_backward(w.stream, {.dx = mix ? around : Tensor(),
                                                        .dbranch = dy,
                                                        .dgates = dgates,
                                                        .dmix = dmix,
                                                        .dy = dsum,
                                                        .branch = y,
                                                        .gates = gates,
                                                        .x = mix ? x : Tensor(),
                                                        .mix = mix});
  const Tensor dx = w.empty(kType, x.shape()), dproducts = w.empty(kType, products.shape());
  const Tensor dlogits = w.empty(kType, products.shape()), dscales = w.empty(kType, {kTokens, kinds});
  reference_kernels().read_streams_backward(w.stream, {.dx = dx,
                                                       .dproducts = dproducts,
                                                       .dlogits = dlogits,
                                                       .dscales = dscales,
                                                       .dy = dy,
                                                       .dsum = around,
                                                       .dgates = dgates,
                                                       .dmix = dmix,
                                                       .x = x,
                                                       .products = products,
                                                       .rstd = rstd,
                                                       .base = base,
                                                       .scale = scale,
                                                       .rule = rule});
  const Tensor dbase = w.empty(kType, base.shape()), dscale = w.empty(kType, scale.shape());
  reference_kernels().sum_rows(w.stream, dbase, dlogits, false);
  reference_kernels().sum_rows(w.stream, dscale, dscales, false);
  expect_gradient("dx", x, dx, forward);
  expect_gradient("dproducts", products, dproducts, forward);
  expect_gradient("dbase", base, dbase, forward);
  expect_gradient("dscale", scale, dscale, forward);
}

// Attention with sinks, as it is made and as its gradients are: of queries, keys, values and sinks.
TEST(SinksGradientTest, EqualsDifferences) {
  Workbench w;
  constexpr int kHeads = 4, kKvHeads = 2, kDim = 3, kTokens = 5;
  const Tensor q = w.random(kType, {kTokens, kHeads, kDim}, "q"), k = w.random(kType, {kTokens, kKvHeads, kDim}, "k");
  const Tensor v = w.random(kType, k.shape(), "v"), sinks = w.random(kType, {kHeads}, "sinks");
  const Tensor y = w.empty(kType, q.shape()), lse = w.empty(kType, {kHeads, kTokens});
  const Tensor dy = w.random(kType, q.shape(), "dy");
  const AttentionSpan spans[] = {
      {.q_begin = 1, .q_end = kTokens, .k_begin = 0, .k_end = kTokens}};  // row 0 sees none
  const AttentionShape shape{
      .num_heads = kHeads, .num_kv_heads = kKvHeads, .head_dim = kDim, .spans = spans, .num_spans = 1, .scale = 0.7f};
  const auto forward = [&] {
    reference_kernels().attention(w.stream, {.y = y, .lse = lse, .q = q, .k = k, .v = v, .shape = shape});
    reference_kernels().attention_sinks(w.stream, y, lse, sinks);
    return dot(y, dy);
  };
  forward();
  const Tensor dq = w.empty(kType, q.shape()), dk = w.empty(kType, k.shape()), dv = w.empty(kType, k.shape());
  const Tensor dsinks = w.of(kType, {kHeads}, std::vector<double>(kHeads, 0));
  reference_kernels().attention_backward(w.stream, {.dq = dq,
                                                    .dk = dk,
                                                    .dv = dv,
                                                    .dy = dy,
                                                    .y = w.copy(y),
                                                    .lse = w.copy(lse),
                                                    .q = q,
                                                    .k = k,
                                                    .v = v,
                                                    .shape = shape});
  reference_kernels().attention_sinks_backward(w.stream, dsinks, dy, w.copy(y), w.copy(lse), sinks);
  expect_gradient("dq", q, dq, forward);
  expect_gradient("dk", k, dk, forward);
  expect_gradient("dv", v, dv, forward);
  expect_gradient("dsinks", sinks, dsinks, forward);
}

TEST(HeadsGradientTest, EqualsDifferences) {
  Workbench w;
  const Tensor shared = w.random(kType, {3, 2}, "shared"), own = w.random(kType, {3, 4, 5}, "own");
  const Tensor y = w.empty(kType, {3, 4, 7}), dy = w.random(kType, y.shape(), "dy");
  const Tensor dshared = w.empty(kType, shared.shape()), down = w.empty(kType, own.shape());
  const auto forward = [&] {
    reference_kernels().join_heads(w.stream, y, shared, own);
    return dot(y, dy);
  };
  reference_kernels().split_heads(w.stream, dshared, down, dy);
  expect_gradient("dshared", shared, dshared, forward);
  expect_gradient("down", own, down, forward);
}

TEST_P(ActivationGradientTest, GatedEqualsDifferences) {
  Workbench w;
  const Shape shape{4, 9};
  const Tensor gate = w.random(kType, shape, "gate"), up = w.random(kType, shape, "up");
  const Tensor dy = w.random(kType, shape, "dy"), y = w.empty(kType, shape);
  const Tensor dgate = w.empty(kType, shape), dup = w.empty(kType, shape);
  reference_kernels().gated_activation_backward(w.stream, dgate, dup, dy, gate, up, GetParam());
  const auto forward = [&] {
    reference_kernels().gated_activation(w.stream, y, gate, up, GetParam());
    return dot(y, dy);
  };
  expect_gradient("dgate", gate, dgate, forward);
  expect_gradient("dup", up, dup, forward);
}

// Each epilogue equals the product followed by the separate kernel.
TEST_P(ActivationGradientTest, EpiloguesEqualSeparateKernels) {
  Workbench w;
  const Shape shape{5, 6};
  const Tensor a = w.random(kType, {5, 3}, "a"), b = w.random(kType, {3, 6}, "b"),
               bias = w.random(kType, {6}, "bias");
  const Tensor product = w.empty(kType, shape), y = w.empty(kType, shape), out = w.empty(kType, shape);
  const Tensor pre = w.random(kType, shape, "pre"), up = w.random(kType, shape, "up");
  const Tensor expected = w.empty(kType, shape), expected2 = w.empty(kType, shape);
  const auto matmul = [&](const Tensor& to, Epilogue e) {
    reference_kernels().matmul(w.stream, {.y = to, .a = a, .b = b, .epilogue = std::move(e)});
  };
  using Kind = Epilogue::Kind;
  matmul(product, {.bias = bias});

  matmul(y, {.kind = Kind::activate, .f = GetParam(), .bias = bias, .act = out});
  reference_kernels().activation(w.stream, expected, product, GetParam());
  expect_near("activate: y", w.values(y), w.values(product), 1e-14);
  expect_near("activate: act", w.values(out), w.values(expected), 1e-14);

  matmul(y, {.kind = Kind::gated, .f = GetParam(), .bias = bias, .act = out, .gate = pre});
  reference_kernels().gated_activation(w.stream, expected, pre, product, GetParam());
  expect_near("gated: y", w.values(y), w.values(product), 1e-14);
  expect_near("gated: act", w.values(out), w.values(expected), 1e-14);

  matmul(product, {});
  matmul(y, {.kind = Kind::activate_backward, .f = GetParam(), .pre = pre});
  reference_kernels().activation_backward(w.stream, expected, product, pre, GetParam());
  expect_near("activate_backward", w.values(y), w.values(expected), 1e-14);

  matmul(y, {.kind = Kind::gated_backward, .f = GetParam(), .gate = pre, .up = up, .dgate = out});
  reference_kernels().gated_activation_backward(w.stream, expected2, expected, product, pre, up, GetParam());
  expect_near("gated_backward: dup", w.values(y), w.values(expected), 1e-14);
  expect_near("gated_backward: dgate", w.values(out), w.values(expected2), 1e-14);
}

// ---- tokens, positions and the rest ----
TEST(ReferenceGradientTest, MatmulByTransposedMatmuls) {
  Workbench w;
  const Tensor a = w.random(kType, {4, 3}, "a"), b = w.random(kType, {5, 3}, "b"), dy = w.random(kType, {4, 5}, "dy");
  const Tensor y = w.empty(kType, {4, 5}), da = w.empty(kType, {4, 3}), db = w.empty(kType, {5, 3});
  reference_kernels().matmul(w.stream, {.y = da, .a = dy, .b = b});
  reference_kernels().matmul(w.stream, {.y = db, .a = dy, .b = a, .transpose_a = true});
  const auto forward = [&] {
    reference_kernels().matmul(w.stream, {.y = y, .a = a, .b = b, .transpose_b = true});
    return dot(y, dy);
  };
  expect_gradient("da", a, da, forward);
  expect_gradient("db", b, db, forward);
}

TEST(ReferenceGradientTest, SumRowsIsTheGradientOfABias) {
  Workbench w;
  const Tensor a = w.random(kType, {4, 3}, "a"), b = w.random(kType, {3, 5}, "b"), dy = w.random(kType, {4, 5}, "dy");
  const Tensor bias = w.random(kType, {5}, "bias"), dbias = w.empty(kType, {5}), y = w.empty(kType, {4, 5});
  reference_kernels().sum_rows(w.stream, dbias, dy, false);
  expect_gradient("dbias", bias, dbias, [&] {
    reference_kernels().matmul(w.stream, {.y = y, .a = a, .b = b, .epilogue = {.bias = bias}});
    return dot(y, dy);
  });
}

TEST(ReferenceGradientTest, RopeByItsInverse) {
  Workbench w;
  const std::vector<int32_t> positions{3, 0, 5};
  const Tensor cos = w.empty(kType, {6, 2}), sin = w.empty(kType, {6, 2});
  for (int i = 0; i < 12; ++i) {
    cos.data<double>()[i] = std::cos(0.3 * i);
    sin.data<double>()[i] = std::sin(0.3 * i);
  }
  const Tensor x = w.random(kType, {3, 2, 5}, "x"), dy = w.random(kType, {3, 2, 5}, "dy");
  const auto rotated = [&](const Tensor& t, bool inverse) {
    const Tensor result = w.copy(t);
    reference_kernels().rope(w.stream, std::array{RopeArgs{result, cos, sin, positions.data(), inverse}});
    return result;
  };
  expect_near("there and back", w.values(rotated(rotated(x, false), true)), w.values(x), 1e-14);
  expect_gradient("dx", x, rotated(dy, true), [&] { return dot(rotated(x, false), dy); });
  const Tensor factors = w.random(kType, {6}, "factors");
  const auto scaled = [&](const Tensor& t, bool inverse) {
    const Tensor result = w.copy(t);
    reference_kernels().rope(w.stream, std::array{RopeArgs{result, cos, sin, positions.data(), inverse, factors}});
    return result;
  };
  expect_gradient("dx of what is scaled", x, scaled(dy, true), [&] { return dot(scaled(x, false), dy); });
}

TEST(ReferenceGradientTest, EmbeddingOfTokensAndPositions) {
  Workbench w;
  const std::vector<int32_t> ids{2, 0, 2, 4}, positions{0, 1, 0, 1};
  const Tensor table = w.random(kType, {5, 3}, "table"), position_table = w.random(kType, {2, 3}, "position_table");
  const Tensor y = w.empty(kType, {4, 3}), dy = w.random(kType, {4, 3}, "dy");
  const Tensor dtable = w.allocator.zeros(kType, {5, 3}), dpositions = w.allocator.zeros(kType, {2, 3});
  reference_kernels().embedding_backward(w.stream, dtable, dy, ids.data());
  reference_kernels().embedding_backward(w.stream, dpositions, dy, positions.data());
  const auto forward = [&] {
    reference_kernels().embedding(w.stream, y, table, ids.data(), position_table, positions.data());
    return dot(y, dy);
  };
  expect_gradient("dtable", table, dtable, forward);
  expect_gradient("dposition_table", position_table, dpositions, forward);
  const std::vector<double> once = w.values(dtable);
  reference_kernels().embedding_backward(w.stream, dtable, dy, ids.data());
  for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(dtable.data<double>()[i], 2 * once[i], 1e-14);
}

TEST(ReferenceGradientTest, CrossEntropy) {
  Workbench w;
  const std::vector<int32_t> targets{4, -1, 0, 2};
  const Tensor logits = w.random(kType, {4, 5}, "logits"), losses = w.empty(kType, {4});
  const Tensor dlogits = w.copy(logits);
  reference_kernels().cross_entropy(w.stream, losses, dlogits, targets.data(), 0.25f);
  EXPECT_EQ(losses.data<double>()[1], 0);
  for (int i = 5; i < 10; ++i) EXPECT_EQ(dlogits.data<double>()[i], 0);
  expect_gradient("dlogits", logits, dlogits, [&] {
    reference_kernels().cross_entropy(w.stream, losses, logits, targets.data(), 0);
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += losses.data<double>()[i];
    return 0.25 * sum;
  });
}

TEST(ReferenceGradientTest, DropoutIsItsOwnBackward) {
  Workbench w;
  const DropoutKey key{.p = 0.4f, .seed = 1, .stream = 2, .first = 77};
  const Tensor x = w.random(kType, {5, 9}, "x"), dy = w.random(kType, {5, 9}, "dy");
  const Tensor y = w.empty(kType, {5, 9}), dx = w.empty(kType, {5, 9});
  reference_kernels().dropout(w.stream, dx, dy, key);
  expect_gradient("dx", x, dx, [&] {
    reference_kernels().dropout(w.stream, y, x, key);
    return dot(y, dy);
  });
}

}  // namespace
}  // namespace weft
