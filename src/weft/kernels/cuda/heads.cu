// Heads of which the first elements are shared by all of a token, and heads one by one: copies, bound by memory.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/vectors.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

// Vectors of N elements: of a head's shared part, of its own, and of both.
struct HeadParts {
  int heads, shared, own;
  __device__ int whole() const { return shared + own; }
};

// A block to each token.
template <class T, int N>
__global__ void join_heads_kernel(T* y, const T* shared, const T* own, const HeadParts parts) {
  const int64_t t = blockIdx.x, row = t * parts.heads;
  for (int at = int(threadIdx.x); at < parts.heads * parts.whole(); at += int(blockDim.x)) {
    const int head = at / parts.whole(), i = at % parts.whole();
    float x[N];
    if (i < parts.shared)
      load_n(x, shared + (t * parts.shared + i) * N);
    else
      load_n(x, own + ((row + head) * parts.own + i - parts.shared) * N);
    store_n(y + (row * parts.whole() + at) * N, x);
  }
}

template <class T, int N>
__global__ void split_heads_kernel(T* dshared, T* down, const T* dy, const HeadParts parts) {
  const int64_t t = blockIdx.x, row = t * parts.heads;
  for (int i = int(threadIdx.x); i < parts.shared; i += int(blockDim.x)) {
    float sum[N] = {};
    for (int head = 0; head < parts.heads; ++head) {
      float x[N];
      load_n(x, dy + ((row + head) * parts.whole() + i) * N);
      for (int j = 0; j < N; ++j) sum[j] += x[j];
    }
    store_n(dshared + (t * parts.shared + i) * N, sum);
  }
  for (int at = int(threadIdx.x); at < parts.heads * parts.own; at += int(blockDim.x)) {
    const int head = at / parts.own, i = at % parts.own;
    float x[N];
    load_n(x, dy + ((row + head) * parts.whole() + parts.shared + i) * N);
    store_n(down + (row * parts.own + at) * N, x);
  }
}

// A block to each token: vectors of N elements between heads of a token, [T, heads, width] from `first` on, and those
// of one head, [heads, T, part].
struct PartOfHeads {
  int64_t tokens;
  int heads, width, part, first;
};
template <class T, int N, bool takes>
__global__ void part_of_heads_kernel(T* to, const T* from, const PartOfHeads p) {
  const int64_t t = blockIdx.x;
  for (int at = int(threadIdx.x); at < p.heads * p.part; at += int(blockDim.x)) {
    const int head = at / p.part, i = at % p.part;
    const int64_t by_token = ((t * p.heads + head) * p.width + p.first + i) * N,
                  by_head = ((head * p.tokens + t) * p.part + i) * N;
    float x[N];
    load_n(x, from + (takes ? by_token : by_head));
    store_n(to + (takes ? by_head : by_token), x);
  }
}

template <bool takes>
void move_part(Stream& stream, const char* op, const Tensor& by_token, const Tensor& by_head, int64_t first) {
  shapes::check_part_of_heads(op, by_token, by_head, first);
  const int64_t tokens = by_token.dim(0), elements = by_head.dim(0) * by_head.dim(2);
  if (by_head.numel() == 0) return;
  with_float(op, by_token, [&]<class T>() {
    constexpr int kMost = kVector<T>;
    const bool is_even = are_aligned(by_token, by_head) && by_token.dim(2) % kMost == 0 &&
                         by_head.dim(2) % kMost == 0 && first % kMost == 0;
    const auto move = [&]<int N>() {
      const PartOfHeads p{.tokens = tokens,
                          .heads = int(by_head.dim(0)),
                          .width = int(by_token.dim(2)) / N,
                          .part = int(by_head.dim(2)) / N,
                          .first = int(first) / N};
      T* const to = device_data<T>(takes ? by_head : by_token);
      launch(stream, part_of_heads_kernel<T, N, takes>, over_rows(tokens, elements / N, 256), to,
             device_data<T>(takes ? by_token : by_head), p);
    };
    is_even ? move.template operator()<kMost>() : move.template operator()<1>();
  });
}

// work.operator()<T, N>(parts, shape)
template <class Work>
void with_head_parts(const char* op, const Tensor& whole, const Tensor& shared, const Tensor& own, Work&& work) {
  const auto heads = int(own.dim(1)), a = int(shared.dim(1)), b = int(own.dim(2));
  with_float(op, whole, [&]<class T>() {
    constexpr int N = kVector<T>;
    const int64_t tokens = own.dim(0), elements = int64_t(heads) * (a + b);
    if (are_aligned(whole, shared, own) && a % N == 0 && b % N == 0)
      work.template operator()<T, N>(HeadParts{heads, a / N, b / N}, over_rows(tokens, elements / N, 256));
    else
      work.template operator()<T, 1>(HeadParts{heads, a, b}, over_rows(tokens, elements, 256));
  });
}

}  // namespace

void join_heads(Stream& stream, const Tensor& y, const Tensor& shared, const Tensor& own) {
  shapes::check_join_heads("join_heads", y, shared, own);
  with_head_parts("join_heads", y, shared, own, [&]<class T, int N>(const HeadParts& parts, LaunchShape shape) {
    launch(stream, join_heads_kernel<T, N>, shape, device_data<T>(y), device_data<T>(shared), device_data<T>(own),
           parts);
  });
}

void split_heads(Stream& stream, const Tensor& dshared, const Tensor& down, const Tensor& dy) {
  shapes::check_join_heads("split_heads", dy, dshared, down);
  with_head_parts("split_heads", dy, dshared, down, [&]<class T, int N>(const HeadParts& parts, LaunchShape shape) {
    launch(stream, split_heads_kernel<T, N>, shape, device_data<T>(dshared), device_data<T>(down), device_data<T>(dy),
           parts);
  });
}

void take_heads(Stream& stream, const Tensor& y, const Tensor& x, int64_t first) {
  move_part<true>(stream, "take_heads", x, y, first);
}
void put_heads(Stream& stream, const Tensor& y, const Tensor& x, int64_t first) {
  move_part<false>(stream, "put_heads", y, x, first);
}

}  // namespace weft::cuda
