// Moving rows of tokens to and from experts: memory bounds it.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T, int N, bool kIsWarp>
__global__ void combine_kernel(T* y, const T* x, const int32_t* at, const float* weights, int64_t tokens, int64_t k,
                               int64_t cols) {
  const Worker<kIsWarp> worker;
  const int64_t t = worker.index;
  if (t >= tokens) return;
  for (int64_t c = worker.rank * N; c < cols; c += worker.size * N) {
    float sum[N] = {};
    for (int64_t i = t * k; i < (t + 1) * k; ++i) {
      if (at[i] < 0) continue;
      float row[N];
      load_n(row, x + int64_t(at[i]) * cols + c);
      const float weight = weights ? weights[i] : 1;
      for (int j = 0; j < N; ++j) sum[j] += weight * row[j];
    }
    store_n(y + t * cols + c, sum);
  }
}

template <class T>
struct CombineBackward {
  T* dx;            // or null
  float* dweights;  // null with x
  const T *dy, *x;
  const int32_t* at;
  const float* weights;
  int64_t copies, k, cols;
};

// A worker to each copy.
template <class T, int N, bool kIsWarp>
__global__ void combine_backward_kernel(const CombineBackward<T> a) {
  const Worker<kIsWarp> worker;
  const int64_t i = worker.index;
  if (i >= a.copies) return;
  const int64_t to = a.at[i];
  const float weight = a.weights[i];
  float sum = 0;
  for (int64_t c = worker.rank * N; to >= 0 && c < a.cols; c += worker.size * N) {
    float g[N], row[N];
    load_n(g, a.dy + i / a.k * a.cols + c);
    if (a.x) load_n(row, a.x + to * a.cols + c);
    for (int j = 0; j < N; ++j) {
      if (a.x) sum += g[j] * row[j];
      g[j] *= weight;
    }
    if (a.dx) store_n(a.dx + to * a.cols + c, g);
  }
  if (!a.dweights) return;
  sum = worker.sum(sum);
  if (worker.rank == 0) a.dweights[i] = sum;
}

const int32_t* rows_there(Stream& stream, const RowCopies& copies, int64_t count) {
  return copies.is_on_device ? copies.at : upload(stream, copies.at, count);
}

}  // namespace

void combine_rows(Stream& stream, const Tensor& y, const Tensor& x, const RowCopies& copies, const Tensor& weights) {
  shapes::check_combine_rows(y, x, copies, weights);
  const int64_t tokens = y.dim(0), cols = y.dim(1);
  if (y.numel() == 0) return;
  const int32_t* const at = rows_there(stream, copies, tokens * copies.k);
  with_float("combine_rows", y, [&]<class T>() {
    with_rows<T>(tokens, cols, are_aligned(y, x), kAnyNumber, [&]<int N, bool kIsWarp>(const RowsShape& shape) {
      launch(stream, combine_kernel<T, N, kIsWarp>, shape.launch, device_data<T>(y), device_data<T>(x), at,
             device_data<float>(weights), tokens, copies.k, cols);
    });
  });
}

void combine_rows_backward(Stream& stream, const Tensor& dx, const Tensor& dweights, const Tensor& dy,
                           const Tensor& x, const RowCopies& copies, const Tensor& weights) {
  shapes::check_combine_rows_backward(dx, dweights, dy, x, copies, weights);
  const int64_t num_copies = dy.dim(0) * copies.k, cols = dy.dim(1);
  if (num_copies == 0) return;
  const int32_t* const at = rows_there(stream, copies, num_copies);
  with_float("combine_rows_backward", dy, [&]<class T>() {
    const CombineBackward<T> a{.dx = device_data<T>(dx),
                               .dweights = device_data<float>(dweights),
                               .dy = device_data<T>(dy),
                               .x = device_data<T>(x),
                               .at = at,
                               .weights = device_data<float>(weights),
                               .copies = num_copies,
                               .k = copies.k,
                               .cols = cols};
    with_rows<T>(num_copies, cols, are_aligned(dx, dy, x), kAnyNumber,
                 [&]<int N, bool kIsWarp>(const RowsShape& shape) {
                   launch(stream, combine_backward_kernel<T, N, kIsWarp>, shape.launch, a);
                 });
  });
}

}  // namespace weft::cuda
