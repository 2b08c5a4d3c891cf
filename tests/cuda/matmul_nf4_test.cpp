// Products with NF4 weights on a device, whole and cut, against the reference; scales have the host's bits.
#include "weft/kernels/nf4.h"

#include <algorithm>

#include "kernels/workbench.h"

namespace weft {
namespace {

// A quantised weight of [rows, cols] or a part of it, on the host and on the device.
struct Nf4Part {
  int64_t rows, cols, first_row, num_rows, first_col, num_cols;
};

struct Quantized {
  Quantized(Workbench& bench, const Nf4Part& p)
      : layout(Shape{p.rows, p.cols}, p.first_row, p.num_rows, p.first_col, p.num_cols) {
    std::vector<float> values(size_t(p.rows * p.cols));
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(0.02 * philox_normal(3, name_hash("nf4"), i));
    const auto read = [&](int64_t first, std::span<float> out) {
      std::copy_n(values.begin() + first, out.size(), out.begin());
    };
    const nf4::Encoder encoder(layout.whole_numel(), read);
    const Tensor blocks = bench.host.empty(DType::u8, {layout.bytes()});
    const Tensor scales = bench.host.empty(DType::f32, {int64_t(encoder.scales().size())});
    std::ranges::copy(encoder.scales(), scales.data<float>());
    encoder.encode(layout, 0, layout.blocks(), read, static_cast<std::byte*>(blocks.raw()));
    on_host = {blocks, scales, &layout};
    on_device = {bench.on_device(blocks), bench.on_device(scales), &layout};
  }
  Quantized(const Quantized&) = delete;

  nf4::Layout layout;
  nf4::Matrix on_host, on_device;
};

struct ProductCase {
  const char* name;
  DType dtype;
  bool transpose_b;
  int64_t m;
  Nf4Part part;
};
class CudaNf4Test : public testing::TestWithParam<ProductCase> {};
INSTANTIATE_TEST_SUITE_P(
    Products, CudaNf4Test,
    testing::Values(ProductCase{"one_row", DType::f32, true, 1, {9, 320, 0, 9, 0, 320}},
                    ProductCase{"one_row_bf16", DType::bf16, true, 1, {5, 72, 0, 5, 0, 72}},
                    ProductCase{"two_rows_in_odd_places", DType::bf16, true, 2, {9, 129, 0, 9, 0, 129}},
                    ProductCase{"four_rows_of_a_part", DType::f16, true, 4, {9, 136, 2, 6, 24, 80}},
                    ProductCase{"three_rows_of_an_odd_part", DType::f32, true, 3, {9, 131, 2, 6, 23, 77}},
                    ProductCase{"a_part_of_whole_blocks", DType::f32, true, 2, {6, 256, 1, 4, 64, 128}},
                    ProductCase{"many_groups", DType::f32, true, 1, {3, 12808, 0, 3, 0, 12808}},
                    ProductCase{"forward", DType::f32, true, 7, {20, 129, 0, 20, 0, 129}},
                    ProductCase{"backward", DType::f32, false, 7, {20, 129, 0, 20, 0, 129}},
                    ProductCase{"forward_of_a_part", DType::f32, true, 5, {12, 136, 3, 7, 16, 88}},
                    ProductCase{"backward_of_a_part", DType::f32, false, 1, {12, 136, 3, 7, 16, 88}},
                    ProductCase{"backward_of_an_odd_part", DType::f32, false, 2, {12, 131, 3, 7, 15, 61}},
                    ProductCase{"bf16_forward", DType::bf16, true, 9, {16, 136, 0, 16, 0, 136}},
                    ProductCase{"f16_backward", DType::f16, false, 9, {37, 24, 0, 37, 0, 24}}),
    [](const auto& test) { return test.param.name; });

TEST_P(CudaNf4Test, EqualsReference) {
  const ProductCase& c = GetParam();
  Workbench bench(1, Device::cuda), host;
  const Quantized b(bench, c.part);
  const int64_t k = c.transpose_b ? c.part.num_cols : c.part.num_rows, n = c.part.num_cols + c.part.num_rows - k;
  const Tensor a = bench.random(c.dtype, {c.m, k}, "a"), bias = bench.random(c.dtype, {n}, "bias");
  const Tensor y = bench.empty(DType::f32, {c.m, n}), want = host.empty(DType::f32, {c.m, n});
  cuda_kernels().matmul(bench.stream, {.y = y,
                                       .a = bench.on_device(a),
                                       .transpose_b = c.transpose_b,
                                       .nf4_b = b.on_device,
                                       .epilogue = {.bias = bench.on_device(bias)}});
  reference_kernels().matmul(
      host.stream, {.y = want, .a = a, .transpose_b = c.transpose_b, .nf4_b = b.on_host, .epilogue = {.bias = bias}});
  const bool is_rounded = c.dtype != DType::f32 && (c.m > 4 || !c.transpose_b);
  expect_near("y", bench.values(y), host.values(want), is_rounded ? 4e-3 : 2e-6);
}

TEST(CudaNf4ScaleTest, AllCodesStandForTheHostsScales) {
  Workbench bench(1, Device::cuda);
  const nf4::Layout layout(Shape{256, nf4::kBlock}, 0, 256, 0, nf4::kBlock);
  const Tensor blocks = bench.host.zeros(DType::u8, {layout.bytes()}), scales = bench.host.empty(DType::f32, {2});
  auto* const bytes = static_cast<uint8_t*>(blocks.raw());
  for (int64_t row = 0; row < 256; ++row) {
    bytes[row * nf4::kBlockBytes] = 0xf0;  // its first element is 1 times the scale
    bytes[row * nf4::kBlockBytes + nf4::kBlock / 2] = uint8_t(row);
  }
  scales.data<float>()[0] = 1, scales.data<float>()[1] = 0;
  for (const int64_t m : {1, 5}) {
    const Tensor a = bench.host.zeros(DType::f32, {m, nf4::kBlock}), y = bench.empty(DType::f32, {m, 256});
    a.data<float>()[0] = 1;
    cuda_kernels().matmul(bench.stream, {.y = y,
                                         .a = bench.on_device(a),
                                         .transpose_b = true,
                                         .nf4_b = {bench.on_device(blocks), bench.on_device(scales), &layout}});
    const std::vector<double> got = bench.values(y);
    for (size_t code = 0; code < 256; ++code) ASSERT_EQ(got[code], double(nf4::kScaleTable[code])) << code;
  }
}

}  // namespace
}  // namespace weft
