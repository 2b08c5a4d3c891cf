// Rotary position embedding: memory bounds it, x is read and written once.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/pairs.h"
#include "weft/kernels/cuda/vectors.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T>
struct Rope {
  T* x;
  const float *cos, *sin, *factors;  // factors: null for 1
  const int32_t* positions;
  int heads, head_dim, half;
  bool is_inverse;
};

// A block to each token of one or two tensors; those of the second come behind those of the first.
template <class T>
struct Ropes {
  Rope<T> of[2];
  unsigned second_block;
};

template <class T, int N>
__global__ void rope_kernel(const Ropes<T> ropes) {
  follow();
  const bool is_second = blockIdx.x >= ropes.second_block;
  const Rope<T> a = is_second ? ropes.of[1] : ropes.of[0];
  const unsigned row = blockIdx.x - (is_second ? ropes.second_block : 0);
  const int parts = a.half / N;  // of a head
  const int64_t angles = int64_t(a.positions[row]) * a.half;
  const float factor = a.factors ? a.factors[a.positions[row]] : 1.0f;
  T* const token = a.x + int64_t(row) * a.heads * a.head_dim;
  for (int at = int(threadIdx.x); at < a.heads * parts; at += int(blockDim.x)) {
    const int head = at / parts, i = at % parts * N;
    T *const first = token + int64_t(head) * a.head_dim + i, *const second = first + a.half;
    float x1[N], x2[N], c[N], s[N];
    load_n(x1, first);
    load_n(x2, second);
    load_n(c, a.cos + angles + i);
    load_n(s, a.sin + angles + i);
    for (int j = 0; j < N; ++j) {
      const float cosine = factor * c[j], sine = factor * (a.is_inverse ? -s[j] : s[j]), before = x1[j];
      x1[j] = before * cosine - x2[j] * sine;
      x2[j] = x2[j] * cosine + before * sine;
    }
    store_n(first, x1);
    store_n(second, x2);
  }
  const int rest = a.factors ? a.head_dim - 2 * a.half : 0;  // of a head, which does not turn
  for (int at = int(threadIdx.x); at < a.heads * rest; at += int(blockDim.x)) {
    T* const x = token + int64_t(at / rest) * a.head_dim + 2 * a.half + at % rest;
    float value[1];
    load_n(value, x);
    value[0] *= factor;
    store_n(x, value);
  }
}

template <class T>
Rope<T> rope_of(Stream& stream, const RopeArgs& args) {
  return {.x = device_data<T>(args.x),
          .cos = device_data<float>(args.cos),
          .sin = device_data<float>(args.sin),
          .factors = args.factors ? device_data<float>(args.factors) : nullptr,
          .positions = upload(stream, args.positions, args.x.dim(0)),
          .heads = int(args.x.dim(1)),
          .head_dim = int(args.x.dim(2)),
          .half = int(args.cos.dim(1)),
          .is_inverse = args.inverse};
}

// One or two, of one dtype.
void rotate(Stream& stream, std::span<const RopeArgs> all) {
  with_float("rope", all[0].x, [&]<class T>() {
    constexpr int N = kVector<T>;
    Ropes<T> ropes{};
    int64_t tokens = 0, most_pairs = 0;
    bool has_vectors = true;
    for (size_t i = 0; i < all.size(); ++i) {
      const Rope<T>& a = ropes.of[i] = rope_of<T>(stream, all[i]);
      tokens += all[i].x.dim(0), most_pairs = std::max(most_pairs, int64_t(a.heads) * a.half);
      has_vectors =
          has_vectors && are_aligned(all[i].x, all[i].cos, all[i].sin) && a.head_dim % N == 0 && a.half % N == 0;
    }
    ropes.second_block = unsigned(all[0].x.dim(0));
    if (has_vectors)
      launch_following(stream, rope_kernel<T, N>, over_rows(tokens, most_pairs / N), ropes);
    else
      launch_following(stream, rope_kernel<T, 1>, over_rows(tokens, most_pairs), ropes);
  });
}

}  // namespace

void rope(Stream& stream, std::span<const RopeArgs> all) {
  for (const RopeArgs& args : all) shapes::check_rope(args);
  for_pairs(
      all, [&](std::span<const RopeArgs> some) { rotate(stream, some); },
      [](const RopeArgs& a, const RopeArgs& b) { return a.x.dtype() == b.x.dtype(); });
}

}  // namespace weft::cuda
