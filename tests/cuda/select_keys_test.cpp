// The keys that rows of sparse attention select on the device: the reference's, and the same in any company; and
// attention to them: the reference's, and without a selection to the bit where a row selects all.
#include "kernels/paged_pool.h"
#include "kernels/select_keys_case.h"
#include "weft/kernels/cuda/select_plan.h"

namespace weft {
namespace {

constexpr int32_t kLast = kSelectedFrom;

class CudaSelectKeysTest : public testing::TestWithParam<SelectKeysCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, CudaSelectKeysTest, testing::ValuesIn(select_keys_cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudaSelectKeysTest, AreTheReferences) {
  SelectKeysBench bench(GetParam(), Device::cuda, 1);
  const std::vector<SelectingRows> rows{{0, 0, 3}, {1, 500, 513}, {2, kLast - 1, kLast}, {0, 62, 67}};
  EXPECT_EQ(bench.select(cuda_kernels(), rows), bench.select(reference_kernels(), rows));
}

TEST_P(CudaSelectKeysTest, ARowSelectsTheSameInAnyCompany) {
  SelectKeysBench bench(GetParam(), Device::cuda, 1);
  const std::vector<int32_t> together = bench.select(cuda_kernels(), {{0, 63, 66}, {1, 505, 519}});
  Kernels in_chunks = cuda_kernels();
  in_chunks.select_keys = [](Stream& stream, const SelectKeysArgs& args) {
    cuda::select_keys_in_chunks(stream, args, 3 * 520);
  };
  const int64_t most = GetParam().most;
  const auto expect_same = [&](const Kernels& kernels, const SelectingRows& rows, int64_t at) {
    const std::vector<int32_t> apart = bench.select(kernels, {rows});
    EXPECT_EQ(apart,
              std::vector(together.begin() + at * most, together.begin() + (at + rows.end - rows.begin) * most))
        << rows.begin;
  };
  expect_same(cuda_kernels(), {0, 65, 66}, 2);
  expect_same(cuda_kernels(), {1, 511, 512}, 9);
  expect_same(cuda_kernels(), {1, 512, 514}, 10);
  expect_same(in_chunks, {1, 505, 519}, 3);
}

TEST(CudaSelectKeysOrderTest, OfEqualsTheFirst) {
  SelectKeysBench bench({.name = "", .heads = 1, .dim = 1, .most = 3}, Device::cuda, 1);
  const std::array keys{1.0f, 5.0f, -3.0f, 5.0f, 2.0f, 5.0f, 7.0f, 5.0f};
  bench.set_keys(0, keys);
  EXPECT_EQ(bench.select_with_ones(cuda_kernels(), {0, 0, int32_t(keys.size())}),
            bench.select_with_ones(reference_kernels(), {0, 0, int32_t(keys.size())}));
}

// Rows that a block goes through in several turns.
TEST(CudaSelectKeysOrderTest, MayBeFarApart) {
  constexpr int32_t kFar = 9001;
  SelectKeysBench bench({.name = "", .heads = 1, .dim = 1, .most = 300, .longest = kFar}, Device::cuda, 1);
  const std::vector<SelectingRows> rows{{1, kFar - 1, kFar}, {2, kFar - 2, kFar}};
  EXPECT_EQ(bench.select(cuda_kernels(), rows), bench.select(reference_kernels(), rows));
  std::vector<float> keys;
  for (int i = 0; i < kFar; ++i) keys.push_back(float(i * 37 % 50) - 20);
  for (const float late : {0.0f, 1000.0f}) {
    keys[8000] += late, keys[8999] += late;
    bench.set_keys(0, keys);
    EXPECT_EQ(bench.select_with_ones(cuda_kernels(), {0, kFar - 1, kFar}),
              bench.select_with_ones(reference_kernels(), {0, kFar - 1, kFar}));
  }
}

TEST(CudaSelectKeysOrderTest, ThereMayBeNoRows) {
  SelectKeysBench bench({.name = ""}, Device::cuda, 1);
  EXPECT_TRUE(bench.select(cuda_kernels(), {{1, 5, 5}}).empty());
}

class CudaSelectedAttentionTest : public testing::TestWithParam<SelectKeysCase> {};

std::vector<SelectKeysCase> attending_cases() {
  constexpr DType bf16 = DType::bf16, f16 = DType::f16;
  return {{.name = "f32", .most = 600, .block_tokens = 37},
          {.name = "bf16", .type = bf16, .most = 600},
          {.name = "one_key", .type = bf16, .most = 1},
          {.name = "latents", .type = bf16, .heads = 16, .dim = 576, .most = 96, .value_dim = 512},
          {.name = "int8_latents", .type = bf16, .codes = RowCodes::int8, .heads = 16, .dim = 72, .value_dim = 64},
          {.name = "values", .heads = 3, .has_values = true},
          // See paged_in_parts.cu.
          {.name = "parts", .type = bf16, .dim = 64, .most = 96, .has_values = true},
          {.name = "parts_f16", .type = f16, .dim = 128, .most = 200, .block_tokens = 37, .has_values = true},
          {.name = "parts_in_spans", .type = bf16, .heads = 2, .dim = 64, .most = 1050, .has_values = true}};
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaSelectedAttentionTest, testing::ValuesIn(attending_cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudaSelectedAttentionTest, ARowSeesItsKeysAlone) {
  const SelectKeysCase& c = GetParam();
  SelectKeysBench bench(c, Device::cuda, 1), on_host(c, Device::cpu, 1);
  const auto most = int32_t(c.most);
  const std::vector<SelectingRows> few{{0, most - 1, most}, {2, most / 2, std::min(most / 2 + 3, most)}},
      many{{0, kLast - 3, kLast}, {1, 0, 3}, {2, most, most + 2}};
  EXPECT_EQ(bytes_of(bench.attend(cuda_kernels(), few, true)), bytes_of(bench.attend(cuda_kernels(), few, false)));
  const Tensor y = bench.attend(cuda_kernels(), many, true);
  const std::vector<double> want = bench.values(on_host.attend(reference_kernels(), many, true)),
                            got = bench.values(y);
  const double rounding = c.type == DType::bf16 ? 0x1p-7 : c.type == DType::f16 ? 0x1p-10 : 3e-6;
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(got[i], want[i], rounding * (1 + std::abs(want[i]))) << "element " << i;
  EXPECT_NE(bytes_of(y), bytes_of(bench.attend(cuda_kernels(), many, false)));
  EXPECT_EQ(bytes_of(bench.attend(cuda_kernels(), {{0, kLast - 2, kLast - 1}}, true)), bytes_of(y, 1, 1));
}

}  // namespace
}  // namespace weft
