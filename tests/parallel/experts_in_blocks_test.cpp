// Experts whose weights lie in quantised blocks, each with rows of its own number or none: every product against
// float64 from what the blocks decode to, the same bits for a row in any company, and the bytes that are counted.
#include "weft/parallel/expert/experts.h"

#include "kernels/random_blocks.h"
#include "weft/kernels/block_decode.h"

namespace weft {
namespace {

constexpr int64_t kExperts = 6, kHidden = 260, kFfn = 70;

struct Experts {
  Experts(Workbench& bench, BlockType type, bool is_gated)
      : gate("gate", Shape{kExperts, kFfn, kHidden}, Init::zeros()),
        up("up", Shape{kExperts, kFfn, kHidden}, Init::zeros()),
        down("down", Shape{kExperts, kHidden, kFfn}, Init::zeros()),
        weights{{is_gated ? &gate : nullptr}, {&up}, {&down}, is_gated ? Activation::silu : Activation::relu} {
    for (Param* p : {&gate, &up, &down}) {
      p->readers = Param::Readers::products;
      BlockMatrix m = random_blocks(bench, type, kExperts * p->shape[1], p->shape[2], 0);
      if (bench.allocator.device() == Device::meta) m.blocks = bench.empty(DType::u8, m.blocks.shape());
      p->hold_in_blocks(std::move(m));
    }
  }
  Param gate, up, down;
  ExpertWeights weights;
};

// Rows x[R, H] of which each expert has as many as `counts` says.
struct Ran {
  Ran(Workbench& bench, const Kernels& kernels, const Experts& experts, const std::vector<int64_t>& counts,
      const Tensor& x)
      : op{experts.weights, RouteRef(route)} {
    Context context{kernels, bench.stream};
    route.begin(x.dim(0), 1, kExperts, {}, 0);
    int32_t* next = route.experts();
    for (size_t e = 0; e < counts.size(); ++e) next = std::fill_n(next, counts[e], int32_t(e));
    route.assign();
    route.exchange(context, nullptr);
    y = op.forward(context, x);
  }
  Route route;
  ExpertsOp op;
  Tensor y;
};

class ExpertsInBlocks : public testing::TestWithParam<std::tuple<BlockType, bool>> {
 protected:
  const std::vector<int64_t> counts{0, 1, 40, 3, 0, 9};
  const int64_t rows = 53;
  const BlockType type = std::get<0>(GetParam());
  Workbench bench{2};
  Experts experts{bench, type, std::get<1>(GetParam())};
  const Tensor x = bench.random(DType::f32, {rows, kHidden}, "x");

  // got[R, N] is in[R, K] times the matrices of the rows' experts.
  void expect_product(const Tensor& got, const Tensor& in, const Param& weight, bool is_rounded) {
    const int64_t n = weight.shape[1], k = weight.shape[2];
    const std::vector<double> plain = bench.values(in), is = bench.values(got);
    const RoundedActivations rounded(plain, {rows, n, k, 0}, type == BlockType::int8 ? k : 32);
    std::vector<float> w(static_cast<size_t>(k));
    int64_t row = 0;
    for (int64_t e = 0; e < kExperts; row += counts[size_t(e++)])
      for (int64_t col = 0; col < n; ++col) {
        decode_row(weight.blocks(), e * n + col, w.data());
        for (int64_t r = row; r < row + counts[size_t(e)]; ++r) {
          double want = 0, magnitude = 0;
          for (int64_t i = 0; i < k; ++i) {
            const auto at = size_t(r * k + i);
            const double a = is_rounded && rounds_activations(type) ? rounded.values[at] : plain[at];
            want += a * double(w[size_t(i)]), magnitude += std::abs(a * double(w[size_t(i)]));
          }
          ASSERT_NEAR(is[size_t(r * n + col)], want, 1e-6 * (0.1 + 20 * magnitude))
              << weight.name << ", expert " << e << ", row " << r << ", column " << col;
        }
      }
  }
  void expect_right(const Ran& ran, bool is_rounded) {
    const ExpertsOp& op = ran.op;
    if (op.w.gate.weight) expect_product(op.g, x, *op.w.gate.weight, is_rounded);
    expect_product(op.u, x, *op.w.up.weight, is_rounded);
    const std::vector<double> up = bench.values(op.u), act = bench.values(op.act),
                              gate = op.w.gate.weight ? bench.values(op.g) : std::vector<double>();
    for (size_t i = 0; i < act.size(); ++i) {
      const double want = op.w.gate.weight ? gate[i] / (1 + std::exp(-gate[i])) * up[i] : std::max(up[i], 0.0);
      ASSERT_NEAR(act[i], want, 2e-6 * (1 + std::abs(want))) << i;
    }
    expect_product(ran.y, op.act, *op.w.down.weight, is_rounded);
  }
};
INSTANTIATE_TEST_SUITE_P(All, ExpertsInBlocks, testing::Combine(testing::ValuesIn(kBlockTypes), testing::Bool()),
                         [](const auto& test) {
                           return fmt::format("{}{}", name_of(std::get<0>(test.param)),
                                              std::get<1>(test.param) ? "_gated" : "");
                         });

TEST_P(ExpertsInBlocks, EqualWhatTheirBlocksDecodeTo) {
  expect_right(Ran(bench, cpu_kernels(), experts, counts, x), true);
  expect_right(Ran(bench, reference_kernels(), experts, counts, x), false);
}

TEST_P(ExpertsInBlocks, GiveARowTheSameBitsInAnyCompany) {
  const Ran all(bench, cpu_kernels(), experts, counts, x);
  int64_t row = 0;
  for (size_t e = 0; e < counts.size(); row += counts[e++])
    for (const int64_t n : {int64_t(1), int64_t(6), counts[e]}) {
      if (n > counts[e]) continue;
      Workbench other(3);
      std::vector<int64_t> some(kExperts, 0);
      some[e] = n;
      const Ran alone(other, cpu_kernels(), experts, some, x.slice_rows(row, n));
      ASSERT_EQ(std::memcmp(alone.y.raw(), all.y.slice_rows(row, n).raw(), alone.y.bytes()), 0)
          << n << " rows of expert " << e;
    }
}

TEST_P(ExpertsInBlocks, CountTheBytesOfThoseThatHaveRows) {
  const auto bytes_of = [&](const std::vector<int64_t>& some) {
    Workbench meta(1, Device::meta);
    const Experts there(meta, type, std::get<1>(GetParam()));
    Ran(meta, meta_kernels(), there, some, meta.empty(DType::f32, {8, kHidden}));
    return meta.stream.cost.bytes;
  };
  size_t one = 0;
  for (const Param* p : {experts.weights.gate.weight, experts.weights.up.weight, experts.weights.down.weight})
    if (p) one += p->blocks().blocks.bytes() / kExperts;
  EXPECT_EQ(bytes_of({0, 3, 0, 5}) - bytes_of({8}), double(one));
  EXPECT_EQ(bytes_of({1, 1, 1, 1, 3, 1}) - bytes_of({8}), 5.0 * double(one));
}

}  // namespace
}  // namespace weft
