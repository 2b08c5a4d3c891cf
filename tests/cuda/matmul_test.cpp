// Dense products on a device: epilogues of aligned tensors and of mixed dtypes, and products of nothing.
#include <array>

#include "cuda/emulation.h"
#include "kernels/workbench.h"

namespace weft {
namespace {

using EpilogueKind = Epilogue::Kind;

std::string_view name_of(EpilogueKind kind) {
  constexpr std::string_view kNames[] = {"none", "activate", "gated", "activate_backward", "gated_backward"};
  return kNames[size_t(kind)];
}

struct Types {
  const char* name;
  DType ab, y, bias, other;  // bias u8: there is none
};
struct Size {
  int64_t m, n, k;
};
class CudaEpilogueTest : public testing::TestWithParam<std::tuple<EpilogueKind, Types, Size>> {};
// cuBLASLt adds a bias of y's dtype to aligned columns, a pass over the elements any other.
constexpr Types kTypes[] = {{"f32", DType::f32, DType::f32, DType::f32, DType::f32},
                            {"bf16", DType::bf16, DType::bf16, DType::bf16, DType::bf16},
                            {"f16_without_bias", DType::f16, DType::f16, DType::u8, DType::f16},
                            {"bf16_with_f32_bias", DType::bf16, DType::bf16, DType::f32, DType::bf16},
                            {"bf16_into_f32", DType::bf16, DType::f32, DType::bf16, DType::f16},
                            {"f16_into_f32_without_bias", DType::f16, DType::f32, DType::u8, DType::bf16}};
std::string epilogue_case_name(const testing::TestParamInfo<CudaEpilogueTest::ParamType>& test) {
  const auto& [kind, types, s] = test.param;
  return fmt::format("{}_{}_{}x{}x{}", name_of(kind), types.name, s.m, s.n, s.k);
}
INSTANTIATE_TEST_SUITE_P(All, CudaEpilogueTest,
                         testing::Combine(testing::Values(EpilogueKind::none, EpilogueKind::activate,
                                                          EpilogueKind::gated, EpilogueKind::activate_backward,
                                                          EpilogueKind::gated_backward),
                                          testing::ValuesIn(kTypes),
                                          testing::Values(Size{3, 40, 9}, Size{5, 13, 7}, Size{2, 16, 0},
                                                          Size{1, 19, 72}, Size{7, 40, 264})),
                         epilogue_case_name);

TEST_P(CudaEpilogueTest, EqualsReference) {
  const auto& [kind, types, s] = GetParam();
  Workbench bench(1, Device::cuda), host;
  const auto make = [&](Workbench& to, DType dtype, std::string_view name, Shape shape) {
    const Tensor x = host.random(dtype, shape, name);
    if (&to == &bench) return bench.on_device(x);
    return to.of(DType::f64, shape, host.values(x));  // the same values
  };
  const Shape y{s.m, s.n};
  const auto run = [&](const Kernels& kernels, Workbench& to) {
    const auto out = [&](DType dtype) { return to.empty(&to == &host ? DType::f64 : dtype, y); };
    MatmulArgs args{.y = out(types.y),
                    .a = make(to, types.ab, "a", {s.m, s.k}),
                    .b = make(to, types.ab, "b", {s.n, s.k}),
                    .transpose_b = true};
    Epilogue& e = args.epilogue;
    e.kind = kind, e.f = s.k == 9 || s.k == 264 ? Activation::gelu_tanh : Activation::gelu;
    if (types.bias != DType::u8) e.bias = make(to, types.bias, "bias", {s.n});
    if (kind == EpilogueKind::activate || kind == EpilogueKind::gated) e.act = out(types.other);
    if (kind == EpilogueKind::gated || kind == EpilogueKind::gated_backward)
      e.gate = make(to, types.other, "gate", y);
    if (kind == EpilogueKind::activate_backward) e.pre = make(to, types.other, "pre", y);
    if (kind == EpilogueKind::gated_backward) e.up = make(to, types.other, "up", y), e.dgate = out(types.other);
    kernels.matmul(to.stream, args);
    return std::array{args.y, e.act, e.dgate};
  };
  const auto got = run(cuda_kernels(), bench), want = run(reference_kernels(), host);
  for (size_t i = 0; i < got.size(); ++i) {
    if (!got[i]) continue;
    const std::vector<double> is = bench.values(got[i]), should = host.values(want[i]);
    double largest = 0.1;
    for (const double x : should) largest = std::max(largest, std::abs(x));
    // y of 16 bits may be rounded before what follows; not before a bias.
    const bool is_16 = types.y != DType::f32 || (i > 0 && types.other != DType::f32);
    // cuBLASLt rounds also before the bias of its own activation.
    const bool is_rounded_twice = i > 0 || (kind == EpilogueKind::activate && !kIsEmulated) ||
                                  kind == EpilogueKind::activate_backward || kind == EpilogueKind::gated_backward;
    for (size_t j = 0; j < is.size(); ++j)
      ASSERT_NEAR(is[j], should[j],
                  1e-5 * largest + (is_16 ? 0x1p-8 * std::abs(should[j]) : 0) +
                      (is_16 && is_rounded_twice ? 0x1p-8 * largest : 0))
          << "output " << i << ", element " << j;
  }
}

TEST(CudaMatmulTest, NothingTimesNothing) {
  Workbench bench(1, Device::cuda);
  const auto tensor = [&](Shape shape) { return bench.on_device(bench.random(DType::bf16, shape, "x")); };
  for (const Size s : {Size{0, 5, 3}, Size{4, 0, 3}, Size{0, 0, 0}, Size{4, 5, 0}}) {
    const Tensor y = tensor({s.m, s.n}), a = tensor({s.m, s.k}), b = tensor({s.k, s.n});
    const std::vector<double> before = bench.values(y);
    cuda_kernels().matmul(bench.stream, {.y = y, .a = a, .b = b, .accumulate = true});
    EXPECT_EQ(bench.values(y), before);
    cuda_kernels().matmul(bench.stream, {.y = y, .a = a, .b = b});
    EXPECT_EQ(bench.values(y), std::vector<double>(before.size(), 0.0));
  }
}

TEST(CudaMatmulTest, BlocksTimesNothing) {
  Workbench bench(1, Device::cuda);
  BlockMatrix b{.blocks = {}, .type = BlockType::q8_0, .rows = 3, .cols = 0};
  b.blocks = bench.empty(DType::u8, {3, b.row_bytes()});
  const Tensor y = bench.empty(DType::f32, {2, 3}), a = bench.empty(DType::bf16, {2, 0});
  cuda_kernels().matmul(bench.stream, {.y = y, .a = a, .transpose_b = true, .blocks_b = b});
  EXPECT_EQ(bench.values(y), std::vector<double>(6, 0.0));
  b = {.blocks = bench.empty(DType::u8, {0, 34}), .type = BlockType::q8_0, .rows = 0, .cols = 32};
  cuda_kernels().matmul(bench.stream, {.y = bench.empty(DType::f32, {2, 0}),
                                       .a = bench.empty(DType::bf16, {2, 32}),
                                       .transpose_b = true,
                                       .blocks_b = b});
}

TEST(CudaMatmulTest, RefusesWhatItCannotDo) {
  Workbench bench(1, Device::cuda);
  const Tensor x = bench.empty(DType::bf16, {4, 4}), wide = bench.empty(DType::f64, {4, 4});
  const auto matmul = [&](const MatmulArgs& args) { cuda_kernels().matmul(bench.stream, args); };
  EXPECT_EQ(cuda_kernels().packed_matmul_b_bytes(DType::bf16, 4, 4, true), 0u);
  EXPECT_THROW(cuda_kernels().pack_matmul_b(bench.stream, x, x, true), Error);
  EXPECT_THROW(matmul({.y = x, .a = x, .packed_b = x}), Error);
  EXPECT_THROW(matmul({.y = x, .a = x, .b = bench.random(DType::bf16, {4, 4}, "b")}), Error);
  const BlockMatrix mapped{.blocks = bench.host.empty(DType::u8, {4, 34}), .rows = 4, .cols = 4};
  EXPECT_THROW(matmul({.y = x, .a = x, .transpose_b = true, .blocks_b = mapped}), Error);
  EXPECT_THROW(matmul({.y = wide, .a = wide, .b = wide}), Error);
  EXPECT_THROW(matmul({.y = x, .a = x, .b = x, .epilogue = {.kind = EpilogueKind::activate, .act = wide}}), Error);
}

}  // namespace
}  // namespace weft
