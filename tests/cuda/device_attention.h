// DeviceAttention: attention and its gradients by any table, with all that they write.
#pragma once
#include "kernels/workbench.h"
#include "support/attention_spans.h"

namespace weft {

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

struct AttentionResults {
  std::vector<std::string> names;
  std::vector<std::vector<double>> values;
};

// Of values in the case's dtype, computed in f64 when is_exact.
inline AttentionResults attention_results(const DeviceAttention& c, Workbench& bench, const Kernels& kernels,
                                          bool is_exact) {
  const auto in = [&](DType type, Shape shape, const char* name) {
    const Tensor x = bench.random(type, shape, name);
    if (!is_exact) return bench.on_device(x);
    const Tensor exact = bench.host.empty(DType::f64, shape);
    reference_kernels().convert(bench.stream, exact, x);
    return exact;
  };
  AttentionResults r;
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

// Equal up to what the case's type rounds off.
inline void expect_near(const DeviceAttention& c, const AttentionResults& expected, const AttentionResults& actual) {
  const double noise = c.type == DType::f32 ? 1e-5 : c.type == DType::bf16 ? 0x1p-7 : 0x1p-10;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    double largest = 0.1;
    for (const double x : expected.values[i])
      if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    for (size_t j = 0; j < expected.values[i].size(); ++j) {
      const double want = expected.values[i][j], got = actual.values[i][j];
      if (want != got) ASSERT_NEAR(got, want, noise * largest) << expected.names[i] << ", element " << j;
    }
  }
}

}  // namespace weft
