// Attention's kernels beside the reference where the parity cases do not look: aligned tensors, f16, wide and odd
// heads, spans that share keys, gaps, parts of a layer's heads, long rows that are cut, and gradients of a bias.
#include "cuda/device_attention.h"
#include "weft/kernels/without_cudnn.h"

namespace weft {
namespace {

std::vector<DeviceAttention> device_attentions() {
  const auto packed = [](const std::vector<int32_t>& starts, bool causal = true) {
    return spans_of(starts, starts, causal, 77);
  };
  const std::vector<AttentionSpan> shared{{.q_begin = 3, .q_end = 20, .k_begin = 10, .k_end = 90, .causal = false},
                                          {.q_begin = 20, .q_end = 49, .k_begin = 0, .k_end = 70, .first_key = 5},
                                          {.q_begin = 55, .q_end = 57, .k_begin = 30, .k_end = 32}};
  const std::vector<AttentionSpan> behind{
      {.q_begin = 0, .q_end = 40, .k_begin = 0, .k_end = 64, .causal = false, .first_key = 9, .lead = 30}};
  std::vector<DeviceAttention> all{
      {"aligned", 4, 2, 32, packed({0, 30, 75}), 75, 75},
      {"dim_100", 2, 1, 100, packed({0, 40}), 40, 40},
      {"dim_192_128", 2, 2, 192, packed({0, 35}), 35, 35, DType::f32, 128},
      {"dim_256", 2, 1, 256, packed({0, 35}), 35, 35},
      {"dim_300", 1, 1, 300, packed({0, 20}), 20, 20},
      {"wider_values", 1, 1, 8, packed({0, 20}), 20, 20, DType::f32, 270},
      {"shared_keys", 4, 2, 24, shared, 60, 100},
      {"behind_a_window", 2, 1, 16, behind, 40, 64, DType::f32, 0, 60},
      {"part_of_heads", 2, 1, 16, packed({0, 40}), 40, 40, DType::f32, 0, 0, -1, 0.3f, 0, 3, 8},
      {"cut", 2, 1, 16, spans_of({0, 3, 5}, {0, 400, 700}, true), 5, 700},
      {"cut_window", 4, 2, 16, spans_of({0, 3}, {0, 700}, true), 3, 700, DType::f32, 0, 600},
      {"bias", 4, 2, 16, packed({0, 90}), 90, 90, DType::f32, 0, 0, 20},
      {"bias_far", 2, 2, 16, packed({0, 70, 90}, false), 90, 90, DType::f32, 0, 0, 200},
      {"bias_one", 3, 1, 16, packed({0, 40}, false), 40, 40, DType::f32, 0, 0, 1, 0.2f, 2.0f},
      {"no_heads", 0, 0, 16, packed({0, 5}), 5, 5},
      {"no_rows", 2, 1, 16, {}, 0, 5},
  };
  const size_t num_f32 = all.size();
  for (size_t i = 0; i < num_f32; ++i)
    for (const DType type : {DType::bf16, DType::f16}) {
      if (type == DType::f16 ? i % 5 != 0 : i % 2 != 0) continue;
      all.push_back(all[i]);
      all.back().type = type, all.back().name += type == DType::bf16 ? "_bf16" : "_f16";
    }
  return all;
}

using CudaAttentionTest = testing::TestWithParam<DeviceAttention>;
INSTANTIATE_TEST_SUITE_P(Cases, CudaAttentionTest, testing::ValuesIn(device_attentions()),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudaAttentionTest, IsTheReferences) {
  Workbench host, device(1, Device::cuda);
  const AttentionResults expected = attention_results(GetParam(), host, reference_kernels(), true);
  const AttentionResults actual = attention_results(GetParam(), device, cuda_kernels_without_cudnn(), false);
  expect_near(GetParam(), expected, actual);
  EXPECT_EQ(attention_results(GetParam(), device, cuda_kernels_without_cudnn(), false).values, actual.values)
      << "another run gives other bits";
}

}  // namespace
}  // namespace weft
