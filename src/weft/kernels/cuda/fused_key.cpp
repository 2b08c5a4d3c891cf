// Which attention fused plans take.
#include <algorithm>
#include <bit>

#include "weft/base/ceil_div.h"
#include "weft/kernels/cuda/attention_ways.h"

namespace weft::cuda {
namespace {

constexpr int32_t kFewestRows = 128;  // fewer are no work for a fused kernel, and of any number
constexpr int32_t kRoundRows = 128;

int32_t largest_divisor_below(int32_t n) {
  for (int32_t d = n / 2; d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

// Whether a window hides keys in another way than from queries with as many keys before them.
bool is_apart(const AttentionShape& s, const AttentionSpan& a) { return s.window > 0 && (!a.causal || a.lead != 0); }

}  // namespace

std::optional<FusedKey> fused_key(const AttentionShape& s, DType type, int64_t num_queries, int64_t num_keys) {
  const bool is_plain = s.softcap == 0 && s.head_dim % 8 == 0 && s.values_dim() % 8 == 0 && s.num_kv_heads > 0 &&
                        s.num_heads % s.num_kv_heads == 0;
  if (!is_plain || (type != DType::bf16 && type != DType::f16)) return {};
  FusedKey key{.type = type, .heads = s.num_heads, .kv_heads = s.num_kv_heads};
  key.row_heads = s.num_heads, key.row_kv_heads = s.num_kv_heads, key.dim = s.head_dim,
  key.value_dim = s.values_dim();
  key.lse_stride = num_queries;
  int32_t q = 0, k = 0, fewest_queries = INT32_MAX, fewest_keys = INT32_MAX;
  for (int i = 0; i < s.num_spans; ++i) {
    const AttentionSpan& a = s.spans[i];
    const int32_t queries = a.q_end - a.q_begin, keys = a.k_end - a.k_begin;
    if (a.q_begin != q || a.k_begin != k || queries < 1 || keys < 1 || is_apart(s, a)) return {};
    if (i == 0) key.is_causal = a.causal;
    if (a.causal != key.is_causal || (a.causal && queries != keys)) return {};
    q = a.q_end, k = a.k_end;
    ++key.sequences;
    key.queries = std::max(key.queries, queries), key.keys = std::max(key.keys, keys);
    fewest_queries = std::min(fewest_queries, queries), fewest_keys = std::min(fewest_keys, keys);
  }
  if (s.window < key.keys) key.window = s.window;
  if (q != num_queries || k != num_keys || key.queries < kFewestRows) return {};
  key.is_ragged = fewest_queries != key.queries || fewest_keys != key.keys || key.queries % kRoundRows != 0 ||
                  key.keys % kRoundRows != 0;
  if (!key.is_ragged) return key;
  const int64_t widest =
      std::max(num_queries * s.num_heads, num_keys * s.num_kv_heads) * std::max(key.dim, key.value_dim);
  if (widest > INT32_MAX) return {};  // what is ragged begins at offsets of 32 bits
  const auto rounded = [](int32_t n) { return int32_t(std::bit_ceil(uint32_t(n))); };
  key.sequences = rounded(key.sequences);
  key.queries = rounded(key.queries), key.keys = rounded(std::max(key.keys, kFewestRows));
  return key;
}

std::optional<FusedKey> fused_backward_key(FusedKey key, int64_t workspace_bytes) {
  key.is_backward = true;
  // A gradient of each score in 16 bits, and of keys one of each query head. Source: what cuDNN 9.19 says of its
  // plans.
  const auto needs = [&] {
    const int64_t group = key.heads / key.kv_heads, rows = int64_t(key.sequences) * key.heads;
    const int64_t of_heads = group > 1 ? rows * key.keys * (key.dim + key.value_dim) * 2 : 0;
    return rows * round_up(key.queries, kRoundRows) * round_up(key.keys, kRoundRows) * 2 + of_heads;
  };
  while (needs() > workspace_bytes) {
    if (!key.is_ragged && key.sequences > 1) {
      key.sequences = largest_divisor_below(key.sequences);
    } else if (key.kv_heads > 1) {
      const int32_t group = key.heads / key.kv_heads;
      key.kv_heads = largest_divisor_below(key.kv_heads), key.heads = key.kv_heads * group;
    } else {
      return {};
    }
  }
  return key;
}

}  // namespace weft::cuda
