// How attention is cut into tasks: lanes, the causal limit of each, and where spans and scratch begin.
//
// The query heads that share a key/value head are laid side by side: lane = query row * group + head in group. Lanes
// are the columns of every tile, so a softmax never reduces across a vector, and one sequence being decoded still
// fills several lanes. What a lane sees is always a run of the keys that neither begins nor ends before that of the
// lane before it; without a window it begins with the first key.
#pragma once
#include <algorithm>
#include <cstring>

#include "weft/base/ceil_div.h"
#include "weft/kernels/cpu/simd_targets.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cpu {

// A span as seen by one key/value head; rows, lanes and keys are counted inside it. Comparisons of keys in f32 are
// exact, since a sequence has at most shapes::kMaxKeys.
struct SpanLanes {
  int64_t q_begin = 0, num_q = 0, k_begin = 0, num_k = 0;
  int64_t first_query = 0, first_key = 0;
  int64_t lead = 0, window = 0;
  int group = 1;
  bool causal = true;

  SpanLanes(const AttentionShape& s, int64_t i) : group(s.num_heads / s.num_kv_heads) {
    const AttentionSpan& a = s.spans[i];
    q_begin = a.q_begin, num_q = a.q_end - a.q_begin, k_begin = a.k_begin, num_k = a.k_end - a.k_begin;
    first_query = a.first_query, first_key = a.first_key, lead = a.lead, window = s.window, causal = a.causal;
  }

  bool is_empty() const { return num_q == 0 || num_k == 0; }
  int64_t num_lanes() const { return num_q * group; }
  // A lane sees keys [start(lane), limit(lane)).
  int64_t limit(int64_t lane) const {
    const int64_t row = group == 1 ? lane : lane / group;
    return causal ? std::clamp<int64_t>(row + 1 + num_k - num_q, 0, num_k) : num_k;
  }
  int64_t start(int64_t lane) const {
    if (window == 0) return 0;
    return std::clamp<int64_t>(lane / group + 1 + num_k - num_q + lead - window, 0, limit(lane));
  }
  // Where a lane stands, counted as the span's keys are.
  int64_t position(int64_t lane) const { return lane / group + num_k - num_q + lead; }
  // The first lane that sees a key, without regard to the window.
  int64_t first_lane(int64_t key) const { return causal ? std::max<int64_t>(key - (num_k - num_q), 0) * group : 0; }
};

// Rows of a [rows, heads, D] tensor: of one head (group 1), or lane by lane of a group of heads.
template <class E>
struct RowView {
  E* base;
  int64_t row_stride;  // elements
  int group, dim;
  E* operator[](int64_t lane) const {
    if (group == 1) return base + lane * row_stride;  // saves a division per row
    return base + lane / group * row_stride + lane % group * dim;
  }
};

template <class E>
RowView<E> rows_of(const Tensor& t, int num_heads, int dim, int64_t first_row, int first_head, int group) {
  const int64_t stride = int64_t(num_heads) * dim;
  return {t.data<std::remove_const_t<E>>() + first_row * stride + int64_t(first_head) * dim, stride, group, dim};
}

// Hands out 64-byte aligned pieces of one block of scratch; with a null block it only counts.
class Arena {
 public:
  explicit Arena(std::byte* base = nullptr) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    std::byte* piece = base_ ? base_ + used_ : nullptr;
    used_ += size_t(round_up(count * int64_t(sizeof(T)), 64));
    return reinterpret_cast<T*>(piece);
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

// starts[i + 1] - starts[i] = how many of something span i has; which span the index falls into.
inline int64_t find_span(const int64_t* starts, int64_t num_spans, int64_t index) {
  return std::upper_bound(starts, starts + num_spans + 1, index) - starts - 1;
}

// Calls body(first, count) for the query rows that lie in no span, or in one without keys.
template <class Body>
void for_each_blind_rows(const AttentionShape& s, int64_t num_rows, Body&& body) {
  int64_t row = 0;
  for (int i = 0; i < s.num_spans; ++i) {
    const AttentionSpan& a = s.spans[i];
    if (a.k_begin == a.k_end || a.q_begin == a.q_end) continue;
    if (a.q_begin > row) body(row, a.q_begin - row);
    row = a.q_end;
  }
  if (num_rows > row) body(row, num_rows - row);
}

inline void zero_rows(Stream& stream, const Tensor& t, int64_t first, int64_t count) {
  if (t.numel() == 0) return;
  const size_t row_bytes = t.bytes() / size_t(t.dim(0));
  auto* data = static_cast<std::byte*>(t.raw()) + size_t(first) * row_bytes;
  stream.team().parallel_for(count, std::max<int64_t>(int64_t((256 << 10) / row_bytes), 1),
                             [&](int64_t begin, int64_t end, int) {
                               std::memset(data + size_t(begin) * row_bytes, 0, size_t(end - begin) * row_bytes);
                             });
}

inline void check_cpu_can(const AttentionShape& s, const Tensor& q) {
  check(s.scale > 0, "attention: the scale of the scores is {}, not above 0", s.scale);
  check(q.dtype() == DType::f32 || q.dtype() == DType::bf16 || q.dtype() == DType::f16,
        "attention on the CPU takes f32, bf16 or f16, not {}", name_of(q.dtype()));
}

}  // namespace weft::cpu
