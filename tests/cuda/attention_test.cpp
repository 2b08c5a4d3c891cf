// Attention's kernels beside the reference where the parity cases do not look: aligned tensors, f16, wide and odd
// heads, spans that share keys, gaps, parts of a layer's heads, long rows that are cut, and gradients of a bias.
#include "kernels/workbench.h"
#include "support/attention_spans.h"

namespace weft {
namespace {

struct DeviceAttention {
  std::string name;
  int heads, kv_heads, dim;
  std::vector<AttentionSpan> spans;
  int64_t queries, keys;
  DType type = DType::f32;
  int value_dim = 0, window = 0, reach = -1;  // reach: of a bias
  float dropout = 0, softcap = 0;
  int first_head = 0, total_heads = 0;
  int values_dim() const { return value_dim ? value_dim : dim; }
};

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

class CudaAttentionTest : public testing::TestWithParam<DeviceAttention> {
 protected:
  struct Results {
    std::vector<std::string> names;
    std::vector<std::vector<double>> values;
  };
  // Of values in the case's dtype, computed in f64 when is_exact.
  Results results(Workbench& bench, const Kernels& kernels, bool is_exact) {
    const DeviceAttention& c = GetParam();
    const auto in = [&](DType type, Shape shape, const char* name) {
      const Tensor x = bench.random(type, shape, name);
      if (!is_exact) return bench.on_device(x);
      const Tensor exact = bench.host.empty(DType::f64, shape);
      reference_kernels().convert(bench.stream, exact, x);
      return exact;
    };
    Results r;
    std::vector<Tensor> outputs;
    const auto out = [&](DType type, Shape shape, const char* name) {
      const Tensor host = bench.host.empty(is_exact ? DType::f64 : type, shape);
      std::memset(host.raw(), 0xff, host.bytes());
      outputs.push_back(bench.on_device(host)), r.names.push_back(name);
      return outputs.back();
    };
    const Shape q_shape{c.queries, c.heads, c.dim}, k_shape{c.keys, c.kv_heads, c.dim};
    const Shape y_shape{c.queries, c.heads, c.values_dim()}, v_shape{c.keys, c.kv_heads, c.values_dim()};
    AttentionArgs args{.y = out(c.type, y_shape, "y"), .lse = out(DType::f32, {c.heads, c.queries}, "lse")};
    args.q = in(c.type, q_shape, "q"), args.k = in(c.type, k_shape, "k"), args.v = in(c.type, v_shape, "v");
    args.shape = {.num_heads = c.heads,
                  .num_kv_heads = c.kv_heads,
                  .head_dim = c.dim,
                  .spans = c.spans.data(),
                  .num_spans = int(c.spans.size()),
                  .scale = 1 / std::sqrt(float(c.dim)),
                  .softcap = c.softcap,
                  .window = c.window,
                  .value_dim = c.value_dim,
                  .first_head = c.first_head,
                  .total_heads = c.total_heads};
    args.dropout = {.p = c.dropout, .seed = uint64_t(3) << 40 | 7, .stream = uint64_t(1) << 50 | 5};
    if (c.reach >= 0) args.bias = in(DType::f32, {c.heads, 2 * c.reach + 1}, "bias");
    kernels.attention(bench.stream, args);
    AttentionBackwardArgs back{.dq = out(c.type, q_shape, "dq"),
                               .dk = out(c.type, k_shape, "dk"),
                               .dv = out(c.type, v_shape, "dv"),
                               .dy = in(c.type, y_shape, "dy")};
    back.y = args.y, back.lse = args.lse, back.q = args.q, back.k = args.k, back.v = args.v;
    back.shape = args.shape, back.dropout = args.dropout, back.bias = args.bias;
    if (args.bias) back.dbias = out(DType::f32, args.bias.shape(), "dbias");
    kernels.attention_backward(bench.stream, back);
    for (const Tensor& t : outputs) r.values.push_back(bench.values(t));
    return r;
  }
};
INSTANTIATE_TEST_SUITE_P(Cases, CudaAttentionTest, testing::ValuesIn(device_attentions()),
                         [](const auto& test) { return test.param.name; });

TEST_P(CudaAttentionTest, IsTheReferences) {
  Workbench host, device(1, Device::cuda);
  const Results expected = results(host, reference_kernels(), true), actual = results(device, cuda_kernels(), false);
  const double noise = GetParam().type == DType::f32 ? 1e-5 : GetParam().type == DType::bf16 ? 0x1p-7 : 0x1p-10;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    double largest = 0.1;
    for (const double x : expected.values[i])
      if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    for (size_t j = 0; j < expected.values[i].size(); ++j) {
      const double want = expected.values[i][j], got = actual.values[i][j];
      if (want != got) ASSERT_NEAR(got, want, noise * largest) << expected.names[i] << ", element " << j;
    }
  }
  EXPECT_EQ(results(device, cuda_kernels(), false).values, actual.values) << "another run gives other bits";
}

}  // namespace
}  // namespace weft
