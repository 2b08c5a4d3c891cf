// Reference kernels: known values, rounding to every dtype, and messages for misuse.
#include "support/attention_spans.h"
#include "workbench.h"

namespace weft {
namespace {

// Known-answer vectors of the Random123 distribution (Salmon et al., 2011).
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t(0), ~uint64_t(0), ~uint64_t(0)),
            (Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // The digits of pi: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

struct ActivationValue {
  Activation f;
  double x, y;
};

TEST(ReferenceValuesTest, Activations) {
  Workbench w;
  for (const ActivationValue& c : {
           ActivationValue{Activation::gelu, 1, 0.841344746068543},  // the normal distribution at 1
           ActivationValue{Activation::gelu, -2, -2 * 0.022750131948179},
           ActivationValue{Activation::gelu, -40, 0},
           ActivationValue{Activation::gelu_tanh, 1, 0.841191990608277},
           ActivationValue{Activation::gelu_tanh, 0, 0},
           ActivationValue{Activation::relu, -3, 0},
           ActivationValue{Activation::relu, 3, 3},
           ActivationValue{Activation::relu_squared, -3, 0},
           ActivationValue{Activation::relu_squared, 3, 9},
           ActivationValue{Activation::silu, 1, 0.731058578630005},
           ActivationValue{Activation::silu, -800, 0},
           ActivationValue{Activation::silu, 800, 800},
           ActivationValue{Activation::gelu_quick, 1, 0.845795765932821},
           ActivationValue{Activation::sigmoid, 1, 0.7310585786300049},
           ActivationValue{Activation::tanh, 1, 0.7615941559557649},
           ActivationValue{Activation::tanh, -40, -1},
           ActivationValue{Activation::swiglu_oai, 1, 0.845795765932821},
           ActivationValue{Activation::swiglu_oai, 50, 6.999953128303318},
           ActivationValue{Activation::swiglu_clipped, 1, 0.731058578630005},
           ActivationValue{Activation::swiglu_clipped, 50, 9.999546021312977},
       }) {
    const Tensor y = w.empty(DType::f64, {1});
    reference_kernels().activation(w.stream, y, w.vector({c.x}), c.f);
    EXPECT_NEAR(*y.data<double>(), c.y, 1e-14) << "f " << int(c.f) << " of " << c.x;
  }
}

TEST(ReferenceValuesTest, GatesAndUpsAreHeld) {
  Workbench w;
  const Tensor y = w.empty(DType::f64, {3});
  reference_kernels().gated_activation(w.stream, y, w.vector({1, 50, 1}), w.vector({0.5, -50, 50}),
                                       Activation::swiglu_oai);
  expect_near("y", w.values(y),
              std::vector<double>{1.5 * 0.845795765932821, -6 * 6.999953128303318, 8 * 0.845795765932821}, 1e-13);
  reference_kernels().gated_activation(w.stream, y, w.vector({1, 50, 1}), w.vector({0.5, -50, 50}),
                                       Activation::swiglu_clipped);
  expect_near("y", w.values(y),
              std::vector<double>{0.5 * 0.731058578630005, -10 * 9.999546021312977, 10 * 0.731058578630005}, 1e-13);
}

// What transformers 5.24 computes of DeepSeek V4's hyper-connections in fp64.
TEST(ReferenceValuesTest, StreamsAreReadMixedAndWritten) {
  Workbench w;
  const Tensor x = w.of(DType::f64, {2, 6}, {0.5, -1, 0.25, 0.75, -0.5, 1.5, -0.25, 0.5, 1, -0.75, 0.125, -1.25});
  const Tensor branch = w.of(DType::f64, {2, 2}, {1, -0.5, 0.25, 2});
  const Tensor products =
      w.of(DType::f64, {2, 15},
           {-0.875,    1.125,  0.03125, -0.375,    1.96875,  -0.15625,  -0.5625, 0.40625,  -1.03125, -0.75,
            0.21875,   -0.875, 1.125,   0.03125,   -0.375,   1.25,      -0.5,    -0.53125, 0.984375, -1.453125,
            -0.453125, 1.0625, -0.6875, -0.203125, 1.140625, -0.609375, 1.25,    -0.5,     -0.53125, 0.984375});
  std::vector<double> of_base;
  for (int i = 0; i < 15; ++i) of_base.push_back((i * 3 % 7 - 3) / 8.0);
  const Tensor base = w.vector(of_base), scale = w.vector({0.75, -0.5, 1.25});
  const Tensor y = w.empty(DType::f64, {2, 2}), gates = w.empty(DType::f64, {2, 3}),
               mix = w.empty(DType::f64, {2, 9});
  const Tensor rstd = w.empty(DType::f64, {2}), written = w.empty(DType::f64, {2, 6});
  const StreamRule rule{.magnitude = 2, .eps = 0.01f, .gate_eps = 0, .norm_eps = 0.1f, .mix_steps = 4};
  reference_kernels().read_streams(w.stream, {y, gates, mix, rstd, x, products, base, scale, rule});
  reference_kernels().write_streams(w.stream, {written, x, branch, gates, mix});
  const auto expect = [&](const char* what, const Tensor& t, const std::vector<double>& expected) {
    const std::vector<double> values = w.values(t);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-8) << what << " " << i;
  };
  expect("y", y, {0.0074378988, 1.1975383414, 0.2850517894, -0.5553452391});
  expect("gates", gates, {1.0404336350, 0.6068526407, 0.9180821833, 0.6530956545, 1.5131536634, 1.0128276787});
  expect("mix", mix,
         {0.2190961222, 0.4419673930, 0.3290700235, 0.1848683669, 0.3723660329, 0.4329281258, 0.5860426767,
          0.1756623959, 0.2279988550, 0.5998844955, 0.2811398990, 0.1052843590, 0.3461877073, 0.1879540982,
          0.4557108606, 0.0440131439, 0.5208656332, 0.4289586492});
  expect("written", written,
         {0.9031774494, 0.2784023505, 0.8330966475, -0.2026255949, 1.0768497990, -0.1214167383, 0.3649921401,
          1.2914763463, 0.5610657434, 2.3748296612, 0.7362165217, 1.2003160799});
}

TEST(ReferenceValuesTest, SinksTakeTheirShare) {
  Workbench w;
  const Tensor y = w.of(DType::f64, {1, 2, 1}, {3, 5}), lse = w.of(DType::f64, {2, 1}, {0, 0});
  reference_kernels().attention_sinks(w.stream, y, lse, w.vector({0, std::log(4.0)}));  // 1 beside 1, and 4 beside 1
  expect_near("y", w.values(y), std::vector<double>{1.5, 1}, 1e-14);
  expect_near("lse", w.values(lse), std::vector<double>{std::log(2.0), std::log(5.0)}, 1e-14);
}

TEST(ReferenceValuesTest, MatmulOfEveryTransposeAccumulates) {
  Workbench w;
  const Tensor y = w.of(DType::f64, {2, 2}, {100, 200, 300, 400});
  const std::vector<double> a{1, 2, 3, 4, 5, 6}, a_transposed{1, 4, 2, 5, 3, 6};
  const std::vector<double> b{1, 0, 2, 1, 0, 3}, b_transposed{1, 2, 0, 0, 1, 3};
  const Tensor a_plain = w.of(DType::f64, {2, 3}, a), a_t = w.of(DType::f64, {3, 2}, a_transposed);
  const Tensor b_plain = w.of(DType::f64, {3, 2}, b), b_t = w.of(DType::f64, {2, 3}, b_transposed);
  const std::vector<double> expected{5, 11, 14, 23};
  reference_kernels().matmul(w.stream, {.y = y, .a = a_plain, .b = b_plain, .accumulate = true});
  expect_near("accumulated", w.values(y), std::vector<double>{105, 211, 314, 423}, 0);
  reference_kernels().matmul(w.stream, {.y = y, .a = a_t, .b = b_plain, .transpose_a = true});
  expect_near("transpose_a", w.values(y), expected, 0);
  reference_kernels().matmul(w.stream, {.y = y, .a = a_plain, .b = b_t, .transpose_b = true});
  expect_near("transpose_b", w.values(y), expected, 0);
}

TEST(ReferenceValuesTest, AttentionAveragesValuesOfEqualScores) {
  Workbench w;
  const std::vector<AttentionSpan> spans = spans_of({0, 2}, {1, 4}, true);
  const AttentionShape shape{
      .num_heads = 1, .num_kv_heads = 1, .head_dim = 1, .spans = spans.data(), .num_spans = 1, .scale = 1};
  const Tensor q = w.of(DType::f64, {2, 1, 1}, {0, 0}), k = w.random(DType::f64, {5, 1, 1}, "k");
  const Tensor v = w.of(DType::f64, {5, 1, 1}, {1000, 1, 3, 8, 1000});
  const Tensor y = w.empty(DType::f64, {2, 1, 1}), lse = w.empty(DType::f64, {1, 2});
  reference_kernels().attention(w.stream, {.y = y, .lse = lse, .q = q, .k = k, .v = v, .shape = shape});
  expect_near("y", w.values(y), std::vector<double>{2, 4}, 1e-14);
  expect_near("lse", w.values(lse), std::vector<double>{std::log(2), std::log(3)}, 1e-14);
}

TEST(ReferenceValuesTest, AttentionWithoutKeysIsZero) {
  Workbench w;
  const std::vector<AttentionSpan> spans = spans_of({0, 3}, {0, 2}, true);
  const AttentionShape shape{
      .num_heads = 1, .num_kv_heads = 1, .head_dim = 2, .spans = spans.data(), .num_spans = 1, .scale = 1};
  const Tensor q = w.random(DType::f64, {3, 1, 2}, "q"), k = w.random(DType::f64, {2, 1, 2}, "k");
  const Tensor y = w.empty(DType::f64, {3, 1, 2}), lse = w.empty(DType::f64, {1, 3});
  reference_kernels().attention(w.stream, {.y = y, .lse = lse, .q = q, .k = k, .v = k, .shape = shape});
  EXPECT_EQ(y.data<double>()[0], 0);
  EXPECT_EQ(y.data<double>()[1], 0);
  EXPECT_EQ(lse.data<double>()[0], -kInfinity);
}

TEST(ReferenceValuesTest, DropoutKeepsWhatPhiloxSays) {
  Workbench w;
  constexpr int64_t kCount = 20000;
  const DropoutKey key{.p = 0.25f, .seed = 11, .stream = 4, .first = uint64_t(1) << 33};
  const Tensor x = w.empty(DType::f64, {kCount}), y = w.empty(DType::f64, {kCount});
  reference_kernels().fill(w.stream, x, 3);
  reference_kernels().dropout(w.stream, y, x, key);
  int64_t kept = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const bool is_kept = to_uniform(philox(11, (uint64_t(1) << 33) + uint64_t(i), 4)[0]) >= 0.25f;
    ASSERT_EQ(y.data<double>()[i], is_kept ? 4.0 : 0.0);
    kept += is_kept;
  }
  EXPECT_NEAR(double(kept) / double(kCount), 0.75, 4 * std::sqrt(0.75 * 0.25 / double(kCount)));
  reference_kernels().dropout(w.stream, y, x, {.p = 0});
  EXPECT_EQ(w.values(y), w.values(x));
}

// A scalar written out by hand, three steps.
TEST(ReferenceValuesTest, AdamW) {
  Workbench w;
  double p = 0.7, m = 0, v = 0;
  const Tensor master = w.vector({p}), m_state = w.vector({0}), v_state = w.vector({0});
  const Tensor value = w.empty(DType::bf16, {1});
  for (int step = 1; step <= 3; ++step) {
    const double g = 0.3 * step, c1 = 1 - std::pow(0.5, step), c2 = 1 - std::pow(0.75, step);
    reference_kernels().adamw(w.stream, {.master = master,
                                         .value = value,
                                         .m = m_state,
                                         .v = v_state,
                                         .grad = w.vector({g * 8}),
                                         .grad_scale = 0.125f,
                                         .lr = 0.0625f,
                                         .beta1 = 0.5f,
                                         .beta2 = 0.75f,
                                         .eps = 0.03125f,
                                         .weight_decay = 0.25f,
                                         .bias_correction1 = float(c1),
                                         .bias_correction2 = float(c2)});
    m = 0.5 * m + 0.5 * g;
    v = 0.75 * v + 0.25 * g * g;
    p = p - 0.0625 * (m / c1 / (std::sqrt(v / c2) + 0.03125) + 0.25 * p);
    EXPECT_NEAR(*master.data<double>(), p, 1e-15) << "step " << step;
    EXPECT_EQ(float(*value.data<BFloat16>()), float(BFloat16(float(p))));
  }
}

TEST(ReferenceValuesTest, SumsOfSquares) {
  Workbench w;
  EXPECT_EQ(reference_kernels().sum_of_squares(w.stream, std::vector{w.vector({1, 2, -3})}), 14);
  const Tensor large = w.of(DType::f32, {2}, {3e38, 3e38});
  EXPECT_TRUE(std::isfinite(reference_kernels().sum_of_squares(w.stream, {&large, 1})));
  EXPECT_FALSE(std::isfinite(
      reference_kernels().sum_of_squares(w.stream, std::vector{w.vector({2}), w.vector({1, kInfinity})})));
  EXPECT_FALSE(
      std::isfinite(reference_kernels().sum_of_squares(w.stream, std::vector{w.vector({1, NAN}), w.vector({2})})));
}

TEST(ReferenceValuesTest, CrossEntropyOfLargeLogitsIsFinite) {
  Workbench w;
  const std::vector<int32_t> targets{0, 1};
  const Tensor logits = w.of(DType::f64, {2, 3}, {9000, 0, 0, 9000, 0, 0}), losses = w.empty(DType::f64, {2});
  reference_kernels().cross_entropy(w.stream, losses, logits, targets.data(), 1);
  expect_near("losses", w.values(losses), std::vector<double>{0, 9000}, 0);
  expect_near("dlogits", w.values(logits), std::vector<double>{0, 0, 0, 1, -1, 0}, 0);
}

// Rounding to 16 bits is one rounding of the double, not a second one of its float.
TEST(ReferenceValuesTest, StoresRoundOnce) {
  Workbench w;
  const double tiny = 0x1p-40;
  EXPECT_EQ(w.values(w.of(DType::bf16, {4}, {1 + 0x1p-8, 1 + 0x1p-8 + tiny, 1 + 3 * 0x1p-8, 1 + 3 * 0x1p-8 - tiny})),
            (std::vector<double>{1, 1 + 0x1p-7, 1 + 2 * 0x1p-7, 1 + 0x1p-7}));
  EXPECT_EQ(w.values(w.of(DType::f16, {3}, {1 + 0x1p-11, 1 + 0x1p-11 + tiny, -(1 + 0x1p-11 + tiny)})),
            (std::vector<double>{1, 1 + 0x1p-10, -(1 + 0x1p-10)}));
  EXPECT_EQ(w.values(w.of(DType::f32, {2}, {1 + 0x1p-24, 1 + 0x1p-24 + tiny})),
            (std::vector<double>{1, 1 + 0x1p-23}));
  EXPECT_EQ(w.values(w.of(DType::f16, {2}, {65520, -1e300})), (std::vector<double>{kInfinity, -kInfinity}));
  EXPECT_EQ(w.values(w.of(DType::bf16, {2}, {3.4e38, 1e39})), (std::vector<double>{kInfinity, kInfinity}));
  EXPECT_TRUE(std::isnan(w.values(w.of(DType::bf16, {1}, {NAN}))[0]));
}

// ---- misuse ----
void expect_error(std::string_view part, FunctionRef<void()> body) {
  try {
    body();
    ADD_FAILURE() << "nothing was thrown; expected: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
  }
}

TEST(ReferenceMisuseTest, ShapesAndDtypes) {
  Workbench w;
  const Tensor f32 = w.random(DType::f32, {2, 3}, "x"), bf16 = w.random(DType::bf16, {2, 3}, "x");
  const Tensor wide = w.random(DType::f32, {2, 4}, "x"), ints = w.empty(DType::i32, {2, 3});
  const std::vector<int32_t> ids{0, 7};
  expect_error("add: b is [2, 4], but must be [2, 3]", [&] { reference_kernels().add(w.stream, f32, f32, wide); });
  expect_error("add: b holds bf16, but must hold f32", [&] { reference_kernels().add(w.stream, f32, f32, bf16); });
  expect_error("add: y is missing", [&] { reference_kernels().add(w.stream, {}, f32, f32); });
  expect_error("fill: y holds i32", [&] { reference_kernels().fill(w.stream, ints, 1); });
  expect_error("matmul: b is [2, 4], but must be [3, 3]",
               [&] { reference_kernels().matmul(w.stream, {.y = f32, .a = f32, .b = wide}); });
  expect_error("matmul: gate is missing", [&] {
    reference_kernels().matmul(w.stream, {.y = w.empty(DType::f32, {2, 4}),
                                          .a = w.empty(DType::f32, {2, 2}),
                                          .b = wide,
                                          .epilogue = {.kind = Epilogue::Kind::gated, .act = wide}});
  });
  expect_error("embedding: ids[1] is 7, but must be in [0, 2)", [&] {
    reference_kernels().embedding(w.stream, w.empty(DType::f32, {2, 3}), f32, ids.data(), {}, nullptr);
  });
  expect_error("cross_entropy: targets[1] is 7, but must be in [-1, 3)",
               [&] { reference_kernels().cross_entropy(w.stream, w.empty(DType::f32, {2}), f32, ids.data(), 0); });
  expect_error("rms norm: rstd holds f64, but must hold f32", [&] {
    reference_kernels().norm(
        w.stream, {.y = f32, .rstd = w.empty(DType::f64, {2}), .x = f32, .weight = w.empty(DType::f32, {3})});
  });
  expect_error("memory of the CPU", [&] {
    Workbench on_meta(1, Device::meta);
    reference_kernels().fill(w.stream, on_meta.empty(DType::f32, {2}), 1);
  });
}

TEST(ReferenceMisuseTest, AttentionStarts) {
  Workbench w;
  const Tensor q = w.random(DType::f32, {4, 2, 3}, "q"), y = w.empty(DType::f32, {4, 2, 3});
  const auto run = [&](std::vector<AttentionSpan> spans, int num_kv_heads = 2) {
    const Tensor k = w.random(DType::f32, {4, num_kv_heads, 3}, "k");
    reference_kernels().attention(w.stream, {.y = y,
                                             .q = q,
                                             .k = k,
                                             .v = k,
                                             .shape = {.num_heads = 2,
                                                       .num_kv_heads = num_kv_heads,
                                                       .head_dim = 3,
                                                       .spans = spans.data(),
                                                       .num_spans = int(spans.size()),
                                                       .scale = 1}});
  };
  EXPECT_NO_THROW(run({{0, 4, 0, 4}}));
  EXPECT_NO_THROW(run({}));
  expect_error("span 1 covers query rows 2 to 4, but must lie in 3 to 4", [&] { run({{0, 3, 0, 4}, {2, 4, 0, 4}}); });
  expect_error("span 0 covers query rows 0 to 5, but must lie in 0 to 4", [&] { run({{0, 5, 0, 4}}); });
  expect_error("span 0 covers key rows 0 to 5, but there are 4", [&] { run({{0, 4, 0, 5}}); });
  expect_error("span 0 ends before it begins", [&] { run({{0, 4, 3, 2}}); });
  expect_error("a sequence has at most 16777216", [&] { run({{.q_end = 4, .k_end = 4, .first_key = 1 << 24}}); });
  expect_error("2 query heads cannot share 3 key/value heads evenly", [&] { run({{0, 4, 0, 4}}, 3); });
}

}  // namespace
}  // namespace weft
