// How attention is cut into tasks: lanes, the causal limit of each, and where sequences and scratch begin.
//
// The query heads that share a key/value head are laid side by side: lane = query row * group + head in group. Lanes
// are the columns of every tile, so a softmax never reduces across a vector, and one sequence being decoded still
// fills several lanes. What a lane sees is always a prefix of the keys, and no shorter than what the lane before
// sees.
#pragma once
#include <algorithm>
#include <cstring>

#include "weft/kernels/kernels.h"

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)  // AVX2 is the least this is built for on x86
#endif

namespace weft::cpu {

constexpr int64_t kMaxKeys = int64_t(1) << 24;  // of one sequence: dropout's index and f32 comparisons end there

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

struct AttentionSequence {
  int64_t q_begin = 0, num_q = 0, k_begin = 0, num_k = 0;
  int group = 1;
  bool causal = true;

  AttentionSequence(const AttentionShape& s, int64_t i)
      : q_begin(s.q_start[i]),
        num_q(s.q_start[i + 1] - s.q_start[i]),
        k_begin(s.k_start[i]),
        num_k(s.k_start[i + 1] - s.k_start[i]),
        group(s.num_heads / s.num_kv_heads),
        causal(s.causal) {}

  int64_t num_lanes() const { return num_q * group; }
  // A lane sees keys [0, limit(lane)).
  int64_t limit(int64_t lane) const {
    const int64_t row = group == 1 ? lane : lane / group;
    return causal ? std::clamp<int64_t>(row + 1 + num_k - num_q, 0, num_k) : num_k;
  }
  // The first lane that sees a key.
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

// starts[i + 1] - starts[i] = how many of something sequence i has; which sequence the index falls into.
inline int64_t find_sequence(const int64_t* starts, int64_t num_sequences, int64_t index) {
  return std::upper_bound(starts, starts + num_sequences + 1, index) - starts - 1;
}

[[noreturn]] inline void throw_no_simd() {
  throw Error("attention on the CPU needs AVX2 or NEON, which this machine lacks: use the reference kernels");
}

// The arguments must make sense before any pointer is formed.
inline void check_attention(const AttentionShape& s, const Tensor& q, const Tensor& k, const Tensor& v,
                            const DropoutKey& dropout) {
  check(s.num_kv_heads > 0 && s.num_heads > 0 && s.num_heads % s.num_kv_heads == 0 && s.head_dim > 0,
        "attention: {} query heads of {} elements cannot share {} key/value heads", s.num_heads, s.head_dim,
        s.num_kv_heads);
  check(s.scale > 0, "attention: the scale of the scores is {}, not above 0", s.scale);
  check(dropout.p >= 0 && dropout.p < 1, "attention: dropout of {} is outside [0, 1)", dropout.p);
  check(q.dtype() == DType::f32 || q.dtype() == DType::bf16, "attention on the CPU takes f32 or bf16, not {}",
        name_of(q.dtype()));
  check(k.dtype() == q.dtype() && v.dtype() == q.dtype(), "attention: q is {}, k {}, v {}", name_of(q.dtype()),
        name_of(k.dtype()), name_of(v.dtype()));
  const int64_t num_q = s.num_sequences ? s.q_start[s.num_sequences] : 0;
  const int64_t num_k = s.num_sequences ? s.k_start[s.num_sequences] : 0;
  check(q.numel() >= num_q * s.num_heads * s.head_dim && k.numel() >= num_k * s.num_kv_heads * s.head_dim &&
            v.numel() == k.numel(),
        "attention: q {}, k {}, v {} are too small for {} query and {} key rows", q.shape().to_string(),
        k.shape().to_string(), v.shape().to_string(), num_q, num_k);
  for (int i = 0; i < s.num_sequences; ++i) {
    const AttentionSequence sequence(s, i);
    check(sequence.num_q >= 0 && sequence.num_k >= 0 && sequence.num_k < kMaxKeys,
          "attention: sequence {} has {} query and {} key rows", i, sequence.num_q, sequence.num_k);
  }
}

}  // namespace weft::cpu
