// Codes of 8 bits that the cuda backend makes, of optimizer states and of rows of keys and values, are the
// reference's.
#include <cstring>

#include "kernels/moments.h"

namespace weft {
namespace {

std::vector<uint8_t> bytes_of(Workbench& bench, const Tensor& t) {
  const Tensor host = bench.on_host(t);
  const auto* const bytes = static_cast<const uint8_t*>(host.raw());
  return {bytes, bytes + host.bytes()};
}

class CudaBlockCodesTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Signs, CudaBlockCodesTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "signed" : "unsigned"; });

TEST_P(CudaBlockCodesTest, AreTheReferences) {
  const bool is_signed = GetParam();
  for (const int64_t count : {1, 256, 1025}) {
    Workbench bench(1, Device::cuda);
    const Tensor x = random_moments(bench, count, is_signed);
    const int64_t blocks = block_codes::num_blocks(count);
    const Tensor codes = bench.empty(DType::u8, {count}), want = bench.host.empty(DType::u8, {count});
    const Tensor scales = bench.empty(DType::f32, {blocks}), want_scales = bench.host.empty(DType::f32, {blocks});
    reference_kernels().encode_blocks(bench.stream, want, want_scales, x, is_signed);
    cuda_kernels().encode_blocks(bench.stream, codes, scales, bench.on_device(x), is_signed);
    EXPECT_EQ(bytes_of(bench, codes), bytes_of(bench, want));
    EXPECT_EQ(bytes_of(bench, scales), bytes_of(bench, want_scales));
    const Tensor back = bench.empty(DType::f32, {count}), want_back = bench.host.empty(DType::f32, {count});
    reference_kernels().decode_blocks(bench.stream, want_back, want, want_scales, is_signed);
    cuda_kernels().decode_blocks(bench.stream, back, codes, scales, is_signed);
    EXPECT_EQ(bench.values(back), bench.values(want_back));
  }
}

TEST(CudaAdamW8, EqualsReference) {
  for (const int64_t count : {1, 256, 1025})
    for (const DType grad : {DType::f32, DType::bf16}) {
      Workbench host, device(1, Device::cuda);
      const SteppedAdamW8 want(host, reference_kernels(), count, grad), got(device, cuda_kernels(), count, grad);
      EXPECT_LE(double(got.num_that_differ(want)), 1 + 1e-3 * double(count));
      for (size_t i = 0; i < got.value.size(); ++i)
        ASSERT_NEAR(got.value[i], got.master[i], std::abs(got.master[i]) / 256);
    }
}

// Whole vectors, and what is left of them.
TEST(CudaMasters, AreTheReferencesHalves) {
  Workbench bench(1, Device::cuda);
  for (const int64_t count : {1, 8, 1029}) {
    const Tensor x = bench.random(DType::f32, {count}, "x");
    const Tensor upper = bench.empty(DType::bf16, {count}), want_upper = bench.host.empty(DType::bf16, {count});
    const Tensor lower = bench.empty(DType::u16, {count}), want_lower = bench.host.empty(DType::u16, {count});
    const Tensor back = bench.empty(DType::f32, {count});
    reference_kernels().split_masters(bench.stream, want_upper, want_lower, x);
    cuda_kernels().split_masters(bench.stream, upper, lower, bench.on_device(x));
    EXPECT_EQ(bytes_of(bench, upper), bytes_of(bench, want_upper));
    EXPECT_EQ(bytes_of(bench, lower), bytes_of(bench, want_lower));
    cuda_kernels().join_masters(bench.stream, back, upper, lower);
    EXPECT_EQ(bytes_of(bench, back), bytes_of(bench, x));
  }
}

struct CodeCase {
  const char* name;
  RowCodes codes;
};
class CudaRowCodesTest : public testing::TestWithParam<CodeCase> {};
INSTANTIATE_TEST_SUITE_P(Codes, CudaRowCodesTest,
                         testing::Values(CodeCase{"int8", RowCodes::int8}, CodeCase{"fp8", RowCodes::fp8}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(CudaRowCodesTest, AreTheReferences) {
  const RowCodes codes = GetParam().codes;
  for (const int64_t dim : {1, 7, 33, 100})
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      Workbench bench(1, Device::cuda);
      std::vector<double> values = bench.values(bench.random(DType::f32, {5, 2, dim}, "x"));
      // Vectors of zeros, of very small numbers, of many magnitudes, with an infinity and with what is no number.
      for (int64_t i = 0; i < dim; ++i) {
        values[size_t(i)] = 0;
        values[size_t(dim + i)] *= 0x1p-120;
        values[size_t(2 * dim + i)] *= std::pow(2.0, -double(i % 20));
      }
      values[size_t(4 * dim - 1)] = -INFINITY, values[size_t(4 * dim)] = NAN;
      const Tensor x = bench.of(type, {5, 2, dim}, values);
      const std::vector<int32_t> rows = {7, 0, 5, 2, 4};
      // As keys and, of three rows of one head only, as values.
      const Tensor fewer = x.slice_flat(2 * dim, {3, 2 * dim});
      std::vector<Tensor> want, got;
      std::vector<PlaceRowsArgs> on_host, on_device;
      for (const Tensor& rows_of_x : {x, fewer}) {
        const Shape width = rows_of_x.shape().rank() == 3 ? Shape{4, 2, 2, dim + 4} : Shape{4, 2, 2 * dim + 4};
        want.push_back(bench.host.zeros(DType::u8, width)), got.push_back(bench.allocator.zeros(DType::u8, width));
        on_host.push_back({want.back(), rows_of_x, rows.data(), codes});
        on_device.push_back({got.back(), bench.on_device(rows_of_x), rows.data(), codes});
      }
      reference_kernels().place_rows(bench.stream, on_host);
      cuda_kernels().place_rows(bench.stream, on_device);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(bytes_of(bench, got[i]), bytes_of(bench, want[i])) << name_of(type) << ", dim " << dim;
    }
}

}  // namespace
}  // namespace weft
