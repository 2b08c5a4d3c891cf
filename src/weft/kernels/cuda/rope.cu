// Rotary position embedding: memory bounds it, x is read and written once.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/vectors.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T>
struct Rope {
  T* x;
  const float *cos, *sin;
  const int32_t* positions;
  int heads, head_dim, half;
  bool is_inverse;
};

// A block to each token.
template <class T, int N>
__global__ void rope_kernel(const Rope<T> a) {
  follow();
  const int parts = a.half / N;  // of a head
  const int64_t angles = int64_t(a.positions[blockIdx.x]) * a.half;
  T* const token = a.x + int64_t(blockIdx.x) * a.heads * a.head_dim;
  for (int at = int(threadIdx.x); at < a.heads * parts; at += int(blockDim.x)) {
    const int head = at / parts, i = at % parts * N;
    T *const first = token + int64_t(head) * a.head_dim + i, *const second = first + a.half;
    float x1[N], x2[N], c[N], s[N];
    load_n(x1, first);
    load_n(x2, second);
    load_n(c, a.cos + angles + i);
    load_n(s, a.sin + angles + i);
    for (int j = 0; j < N; ++j) {
      const float sine = a.is_inverse ? -s[j] : s[j], before = x1[j];
      x1[j] = before * c[j] - x2[j] * sine;
      x2[j] = x2[j] * c[j] + before * sine;
    }
    store_n(first, x1);
    store_n(second, x2);
  }
}

}  // namespace

void rope(Stream& stream, const RopeArgs& args) {
  shapes::check_rope(args);
  const int64_t tokens = args.x.dim(0);
  if (args.x.numel() == 0) return;
  const int32_t* const positions = upload(stream, args.positions, tokens);
  with_float("rope", args.x, [&]<class T>() {
    constexpr int N = kVector<T>;
    const Rope<T> a{.x = device_data<T>(args.x),
                    .cos = device_data<float>(args.cos),
                    .sin = device_data<float>(args.sin),
                    .positions = positions,
                    .heads = int(args.x.dim(1)),
                    .head_dim = int(args.x.dim(2)),
                    .half = int(args.cos.dim(1)),
                    .is_inverse = args.inverse};
    const int64_t pairs = int64_t(a.heads) * a.half;
    if (are_aligned(args.x, args.cos, args.sin) && a.head_dim % N == 0 && a.half % N == 0)
      launch_following(stream, rope_kernel<T, N>, over_rows(tokens, pairs / N), a);
    else
      launch_following(stream, rope_kernel<T, 1>, over_rows(tokens, pairs), a);
  });
}

}  // namespace weft::cuda
