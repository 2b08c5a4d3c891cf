// Attention by plain loops. Sanitizers do not look at this file: its loops would take most of their time.
#include "kernels/plain_attention.h"

#include <algorithm>
#include <cmath>

#include "weft/base/philox.h"

namespace weft {

std::vector<int32_t> starts(const std::vector<int>& lengths) {
  std::vector<int32_t> result{0};
  for (const int n : lengths) result.push_back(result.back() + n);
  return result;
}

std::vector<AttentionSpan> case_spans(const AttentionCase& c) {
  if (!c.spans.empty()) return c.spans;
  return spans_of(starts(c.q), starts(c.k), c.causal, 0x7000000001);
}

namespace {

template <class T>
Doubles read_as(const Tensor& t) {
  Doubles values(static_cast<size_t>(t.numel()));
  const T* from = t.data<T>();
  for (double& value : values) value = double(float(*from++));
  return values;
}

}  // namespace

Doubles read_doubles(const Tensor& t) {
  switch (t.dtype()) {
    case DType::f32: return read_as<float>(t);
    case DType::bf16: return read_as<BFloat16>(t);
    default: return read_as<Float16>(t);
  }
}

AttentionResults plain_attention(const AttentionCase& c, float scale, const Doubles& q, const Doubles& k,
                                 const Doubles& v, const Doubles& dy, const Doubles& given_y, const DropoutKey& key) {
  const int64_t d = c.dim, dv = c.values_dim(), n = c.num_heads, kv = c.num_kv_heads, t = starts(c.q).back();
  const auto total_heads = uint64_t(c.total_heads ? c.total_heads : c.num_heads);
  AttentionResults r{Doubles(dy.size()), Doubles(size_t(n * t), -HUGE_VAL), Doubles(q.size()), Doubles(k.size()),
                     Doubles(v.size())};
  for (const AttentionSpan& s : case_spans(c)) {
    const int64_t num_q = s.q_end - s.q_begin, num_k = s.k_end - s.k_begin;
    for (int64_t row = 0; row < num_q; ++row) {
      const int64_t visible = s.causal ? std::clamp<int64_t>(row + 1 + num_k - num_q, 0, num_k) : num_k;
      // The window reaches back from the row's own position, which the last key is `lead` before on the last row.
      const auto is_in_window = [&](int64_t j) {
        return c.window == 0 || (row - (num_q - 1)) + s.lead + (num_k - 1 - j) < c.window;
      };
      for (int64_t h = 0; h < n; ++h) {
        const int64_t at = ((s.q_begin + row) * n + h) * d, y_at = at / d * dv;
        const auto head_of_key = [&](int64_t j) { return (s.k_begin + j) * kv + h / (n / kv); };
        const auto key_at = [&](int64_t j) { return head_of_key(j) * d; };
        const auto value_at = [&](int64_t j) { return head_of_key(j) * dv; };
        Doubles p(static_cast<size_t>(visible)), keep(p.size(), 1.0), dp(p.size()), slope(p.size(), double(scale));
        double maximum = -HUGE_VAL, sum = 0, delta = 0;
        for (int64_t j = 0; j < visible; ++j) {
          if (!is_in_window(j)) {
            p[j] = -HUGE_VAL;
            continue;
          }
          for (int64_t e = 0; e < d; ++e) p[j] += q[at + e] * k[key_at(j) + e] * scale;
          if (c.softcap > 0) {
            const double bend = std::tanh(p[j] / c.softcap);
            p[j] = c.softcap * bend, slope[j] = (1 - bend * bend) * scale;
          }
          maximum = std::max(maximum, p[j]);
        }
        if (maximum == -HUGE_VAL) continue;
        for (double& x : p) sum += x = std::exp(x - maximum);
        r.lse[h * t + s.q_begin + row] = maximum + std::log(sum);
        for (int64_t j = 0; j < visible; ++j) {
          if (p[j] == 0) continue;
          const uint64_t head = (uint64_t(s.first_query + row) * total_heads + uint64_t(c.first_head + h));
          const uint64_t index = head * (1u << 24) + uint64_t(s.first_key);
          if (key.p > 0) {
            const float u = to_uniform(philox(key.seed, index + uint64_t(j), key.stream)[0]);
            keep[j] = u >= key.p ? 1.0 / (1.0 - key.p) : 0.0;
          }
          p[j] /= sum;
          for (int64_t e = 0; e < dv; ++e) {
            r.y[y_at + e] += p[j] * keep[j] * v[value_at(j) + e];
            r.dv[value_at(j) + e] += p[j] * keep[j] * dy[y_at + e];
            dp[j] += keep[j] * dy[y_at + e] * v[value_at(j) + e];
          }
        }
        for (int64_t e = 0; e < dv; ++e) delta += dy[y_at + e] * given_y[y_at + e];
        for (int64_t j = 0; j < visible; ++j) {
          if (p[j] == 0) continue;
          const double ds = p[j] * (dp[j] - delta) * slope[j];
          for (int64_t e = 0; e < d; ++e) {
            r.dq[at + e] += ds * k[key_at(j) + e];
            r.dk[key_at(j) + e] += ds * q[at + e];
          }
        }
      }
    }
  }
  return r;
}

}  // namespace weft
