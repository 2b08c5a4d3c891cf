// Sinks of attention: keys without values, which take a part of every row's probability; bound by memory.
#include "weft/kernels/cuda/column_sums.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T, int N, bool kIsWarp>
__global__ void sinks_kernel(T* y, float* lse, const T* sinks, int64_t tokens, int64_t heads, int64_t dim) {
  const Worker<kIsWarp> worker;
  const int64_t row = worker.index;  // of token and head
  if (row >= tokens * heads) return;
  const int64_t at = row % heads * tokens + row / heads;
  const float here = lse[at], sink = load(sinks + row % heads);
  const float high = fmaxf(here, sink), all = high + log1pf(expf(fminf(here, sink) - high)), keep = expf(here - all);
  for (int64_t c = worker.rank * N; c < dim; c += worker.size * N) {
    float x[N];
    load_n(x, y + row * dim + c);
    for (int i = 0; i < N; ++i) x[i] *= keep;
    store_n(y + row * dim + c, x);
  }
  worker.sync();  // all have read it
  if (worker.rank == 0) lse[at] = all;
}

// A sink's value is 0: of dscore = p (dp - dy . y) nothing is left but the second term.
template <class T>
struct SinkTerms {
  const float *dots, *lse;  // [tokens, heads], [heads, tokens]
  const T* sinks;
  int64_t tokens, cols;

  template <int N>
  __device__ __forceinline__ void at(float (&term)[N], int64_t row, int64_t col) const {
    for (int i = 0; i < N; ++i)
      term[i] = -expf(load(sinks + col + i) - lse[(col + i) * tokens + row]) * dots[row * cols + col + i];
  }
};

}  // namespace

void attention_sinks(Stream& stream, const Tensor& y, const Tensor& lse, const Tensor& sinks) {
  shapes::check_attention_sinks("attention_sinks", y, lse, sinks);
  const int64_t tokens = y.dim(0), heads = y.dim(1), dim = y.dim(2);
  with_float("attention_sinks", y, [&]<class T>() {
    with_rows<T>(tokens * heads, dim, are_aligned(y), kAnyNumber, [&]<int N, bool kIsWarp>(const RowsShape& shape) {
      launch(stream, sinks_kernel<T, N, kIsWarp>, shape.launch, device_data<T>(y), device_data<float>(lse),
             device_data<T>(sinks), tokens, heads, dim);
    });
  });
}

void attention_sinks_backward(Stream& stream, const Tensor& dsinks, const Tensor& dy, const Tensor& y,
                              const Tensor& lse, const Tensor& sinks) {
  shapes::check_attention_sinks_backward(dsinks, dy, y, lse, sinks);
  const int64_t tokens = y.dim(0), heads = y.dim(1);
  const Tensor dots = stream.allocator().empty(DType::f32, {tokens, heads});
  dot_rows(stream, dots, dy, y);
  with_float("attention_sinks_backward", y, [&]<class T>() {
    const SinkTerms<T> terms{device_data<float>(dots), device_data<float>(lse), device_data<T>(sinks), tokens, heads};
    sum_columns<1>(stream, device_data<float>(dsinks), terms, tokens, heads, true);
  });
}

}  // namespace weft::cuda
