// Cross entropy from parts of the vocabulary: stats and gradients of uneven parts together equal the fused kernel's.
#include "cpu_everywhere.h"

namespace weft {
namespace {

struct Loss {
  Tensor losses;    // [T] f32, or f64 beside f64
  Tensor gradient;  // like the logits
};

constexpr float kScale = 0.25f;

// Columns [begin, end) of x, in memory of their own.
Tensor columns_of(Workbench& bench, const Tensor& x, int64_t begin, int64_t end) {
  const Tensor part = bench.empty(x.dtype(), {x.dim(0), end - begin});
  const size_t size = size_of(x.dtype());
  for (int64_t t = 0; t < x.dim(0); ++t)
    std::memcpy(static_cast<std::byte*>(part.raw()) + size_t(t * (end - begin)) * size,
                static_cast<const std::byte*>(x.raw()) + size_t(t * x.dim(1) + begin) * size,
                size_t(end - begin) * size);
  return part;
}

void put_columns(const Tensor& x, const Tensor& part, int64_t begin) {
  const size_t size = size_of(x.dtype()), row = size_t(part.dim(1)) * size;
  for (int64_t t = 0; t < x.dim(0); ++t)
    std::memcpy(static_cast<std::byte*>(x.raw()) + size_t(t * x.dim(1) + begin) * size,
                static_cast<const std::byte*>(part.raw()) + size_t(t) * row, row);
}

// What ranks that hold the columns between neighbouring `borders` compute together, as one rank after the other.
void loss_of_parts(const Kernels& kernels, Stream& stream, const Tensor& logits, const std::vector<int32_t>& targets,
                   const std::vector<int64_t>& borders, const Loss& out, const Tensor& factors = {}) {
  Workbench bench;
  const auto num_tokens = targets.size();
  std::vector<Tensor> parts;
  std::vector<std::vector<double>> stats;
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    parts.push_back(columns_of(bench, logits, borders[i], borders[i + 1]));
    const Tensor stats_of_part = bench.empty(out.losses.dtype(), {int64_t(num_tokens), 3});
    kernels.cross_entropy_stats(stream, stats_of_part, parts[i], targets.data(), borders[i]);
    stats.push_back(bench.values(stats_of_part));
  }
  std::vector<double> log_sums(num_tokens), losses(num_tokens, 0.0);
  for (size_t t = 0; t < num_tokens; ++t) {
    double highest = -INFINITY, sum = 0, logit = 0;
    for (const auto& part : stats) highest = std::max(highest, part[3 * t]);
    for (const auto& part : stats) sum += part[3 * t + 1] * std::exp(part[3 * t] - highest);
    for (const auto& part : stats) logit += part[3 * t + 2];
    log_sums[t] = highest + std::log(sum);
    if (targets[t] >= 0) losses[t] = log_sums[t] - logit;
  }
  const Tensor lse = bench.of(out.losses.dtype(), {int64_t(num_tokens)}, log_sums);
  reference_kernels().convert(bench.stream, out.losses, bench.vector(losses));
  for (size_t i = 0; i < parts.size(); ++i) {
    kernels.cross_entropy_gradient(stream, parts[i], lse, factors, targets.data(), borders[i], kScale);
    put_columns(out.gradient, parts[i], borders[i]);
  }
}

struct Split {
  std::string name;
  std::vector<int64_t> borders;
};

class CpuVocabPartsTest : public testing::TestWithParam<std::tuple<Split, DType>> {};
INSTANTIATE_TEST_SUITE_P(
    All, CpuVocabPartsTest,
    testing::Combine(testing::Values(Split{"one", {0, 1000}}, Split{"two", {0, 37, 1000}},
                                     Split{"three", {0, 513, 514, 1000}}, Split{"four", {0, 64, 700, 959, 1000}},
                                     Split{"an_empty_one", {0, 0, 300, 300, 1000}}, Split{"long", {0, 5000, 21000}}),
                     testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16)),
    [](const auto& test) {
      return std::get<Split>(test.param).name + "_" + std::string(name_of(std::get<DType>(test.param)));
    });

TEST_P(CpuVocabPartsTest, GiveTheLossOfTheWhole) {
  const Split split = std::get<Split>(GetParam());
  const DType dtype = std::get<DType>(GetParam());
  constexpr int64_t kTokens = 11;
  const int64_t vocab = split.borders.back();
  Workbench bench;
  const Tensor logits = bench.random(dtype, {kTokens, vocab}, "logits");
  reference_kernels().scale(bench.stream, logits, logits, 4);
  std::vector<int32_t> targets;
  for (int64_t t = 0; t < kTokens; ++t)
    targets.push_back(t % 5 == 3 ? -1 : int32_t(philox(8, uint64_t(t))[0] % uint64_t(vocab)));
  targets[0] = 0, targets[1] = int32_t(vocab - 1), targets[2] = int32_t(split.borders[1] % vocab);
  const Loss whole{bench.empty(dtype == DType::f64 ? DType::f64 : DType::f32, {kTokens}), bench.copy(logits)};
  reference_kernels().cross_entropy(bench.stream, whole.losses, whole.gradient, targets.data(), kScale);
  if (dtype == DType::f64) {
    const Loss parts{bench.copy(whole.losses), bench.copy(logits)};
    loss_of_parts(reference_kernels(), bench.stream, logits, targets, split.borders, parts);
    expect_near("losses", bench.values(parts.losses), bench.values(whole.losses), 1e-13);
    expect_near("gradient", bench.values(parts.gradient), bench.values(whole.gradient), 1e-14);
    return;
  }
  expect_everywhere(
      {{"losses", whole.losses, 1e-6}, {"gradient", whole.gradient, std::max(1e-6, rounding_of(dtype) / 8)}},
      [&](Stream& stream, const std::vector<Tensor>& out) {
        loss_of_parts(cpu_kernels(), stream, logits, targets, split.borders, {out[0], out[1]});
      });
}

// Each row's gradient times a number of its own.
TEST(CpuVocabParts, RowsHaveFactors) {
  constexpr int64_t kTokens = 7, kVocab = 1030;
  const std::vector<int32_t> targets = {3, -1, 1029, 0, 700, -1, 64};
  const std::vector<double> numbers = {0.5, 3, -2, 0, 1, -1, 1e-3};
  Workbench bench;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    const Tensor logits = bench.random(dtype, {kTokens, kVocab}, "logits");
    const Tensor factors = bench.of(wide, {kTokens}, numbers);
    const Loss plain{bench.empty(wide, {kTokens}), bench.copy(logits)};
    reference_kernels().cross_entropy(bench.stream, plain.losses, plain.gradient, targets.data(), kScale);
    std::vector<double> expected = bench.values(plain.gradient);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] *= numbers[i / size_t(kVocab)];
    const Loss scaled{bench.empty(wide, {kTokens}), bench.copy(logits)};
    loss_of_parts(reference_kernels(), bench.stream, logits, targets, {0, 500, kVocab}, scaled, factors);
    expect_near("gradient", bench.values(scaled.gradient), expected, std::max(1e-6, rounding_of(dtype)));
    if (dtype == DType::f64) continue;
    expect_everywhere(
        {{"losses", scaled.losses, 1e-6}, {"gradient", scaled.gradient, rounding_of(dtype)}},
        [&](Stream& stream, const std::vector<Tensor>& out) {
          loss_of_parts(cpu_kernels(), stream, logits, targets, {0, 500, kVocab}, {out[0], out[1]}, factors);
        });
  }
}

// The row of one rank may hold nothing finite: masked or padded columns.
TEST(CpuVocabParts, StatsOfMaskedColumnsAddNothing) {
  Workbench bench;
  const std::vector<int32_t> targets = {5};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor logits = bench.of(dtype, {1, 3000}, std::vector<double>(3000, -INFINITY));
    const Tensor stats = bench.of(DType::f32, {1, 3}, {-INFINITY, 0, 0});
    expect_everywhere({{"stats", stats}}, [&](Stream& stream, const std::vector<Tensor>& out) {
      cpu_kernels().cross_entropy_stats(stream, out[0], logits, targets.data(), 3000);
    });
    const Tensor reference = bench.empty(DType::f32, {1, 3});
    reference_kernels().cross_entropy_stats(bench.stream, reference, logits, targets.data(), 3000);
    expect_output("reference", reference, {"stats", stats});
  }
}

TEST(CpuVocabParts, RefusesOtherShapes) {
  Workbench bench;
  const Tensor logits = bench.random(DType::f32, {2, 8}, "logits"), stats = bench.empty(DType::f32, {2, 3});
  const std::vector<int32_t> targets = {5, -1}, wrong = {5, -2};
  EXPECT_THROW(cpu_kernels().cross_entropy_stats(bench.stream, logits, logits, targets.data(), 0), Error);
  EXPECT_THROW(cpu_kernels().cross_entropy_stats(bench.stream, stats, logits, wrong.data(), 0), Error);
  EXPECT_THROW(cpu_kernels().cross_entropy_stats(bench.stream, stats, logits, targets.data(), -1), Error);
  EXPECT_THROW(cpu_kernels().cross_entropy_gradient(bench.stream, logits, stats, {}, targets.data(), 0, 1), Error);
}

}  // namespace
}  // namespace weft
