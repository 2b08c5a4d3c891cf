// Sums and dot products along rows and columns, and products of matrices with vectors of their columns.
#include "weft/kernels/cuda/column_sums.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T>
struct ProductTerms {
  const T *a, *b;
  int64_t cols;

  template <int N>
  __device__ __forceinline__ void at(float (&term)[N], int64_t row, int64_t col) const {
    float other[N];
    load_n(term, a + row * cols + col);
    load_n(other, b + row * cols + col);
    for (int i = 0; i < N; ++i) term[i] *= other[i];
  }
};

template <class T, int N, bool kIsWarp>
__global__ void scale_columns_kernel(T* y, const T* x, const float* factors, int64_t rows, int64_t cols) {
  const Worker<kIsWarp> worker;
  if (worker.index >= rows) return;
  const int64_t begin = worker.index * cols;
  for (int64_t c = worker.rank * N; c < cols; c += worker.size * N) {
    float a[N], factor[N];
    load_n(a, x + begin + c);
    load_n(factor, factors + c);
    for (int i = 0; i < N; ++i) a[i] *= factor[i];
    store_n(y + begin + c, a);
  }
}

template <class T, int N, bool kIsWarp>
__global__ void dot_rows_kernel(float* y, const ProductTerms<T> terms, int64_t rows) {
  const Worker<kIsWarp> worker;
  if (worker.index >= rows) return;
  float sum = 0;
  for (int64_t c = worker.rank * N; c < terms.cols; c += worker.size * N) {
    float term[N];
    terms.at(term, worker.index, c);
    for (int i = 0; i < N; ++i) sum += term[i];
  }
  sum = worker.sum(sum);
  if (worker.rank == 0) y[worker.index] = sum;
}

// y = or += the sums of terms over rows, whole vectors of T at a time where they lie so.
template <class T, class Terms>
void sum_terms(Stream& stream, const Tensor& y, const Terms& terms, int64_t rows, bool is_aligned, bool accumulate) {
  const bool has_vectors = is_aligned && terms.cols % kVector<T> == 0;
  const auto sum = has_vectors ? sum_columns<kVector<T>, Terms> : sum_columns<1, Terms>;
  sum(stream, device_data<float>(y), terms, rows, terms.cols, accumulate);
}

}  // namespace

void sum_rows(Stream& stream, const Tensor& y, const Tensor& x, bool accumulate) {
  shapes::check_sum_rows(y, x);
  with_float("sum_rows", x, [&]<class T>() {
    const ElementTerms<T> terms{device_data<T>(x), x.cols()};
    sum_terms<T>(stream, y, terms, x.rows(), are_aligned(x), accumulate);
  });
}

void scale_columns(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& factors) {
  shapes::check_scale_columns(y, x, factors);
  with_float("scale_columns", x, [&]<class T>() {
    with_rows<T>(x.rows(), x.cols(), are_aligned(y, x, factors), kAnyNumber,
                 [&]<int N, bool kIsWarp>(const RowsShape& shape) {
                   launch(stream, scale_columns_kernel<T, N, kIsWarp>, shape.launch, device_data<T>(y),
                          device_data<T>(x), device_data<float>(factors), x.rows(), x.cols());
                 });
  });
}

void dot_columns(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b, bool accumulate) {
  shapes::check_dot_columns(y, a, b);
  with_float("dot_columns", a, [&]<class T>() {
    const ProductTerms<T> terms{device_data<T>(a), device_data<T>(b), a.cols()};
    sum_terms<T>(stream, y, terms, a.rows(), are_aligned(a, b), accumulate);
  });
}

void dot_rows(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  shapes::check_dot_rows(y, a, b);
  with_float("dot_rows", a, [&]<class T>() {
    const ProductTerms<T> terms{device_data<T>(a), device_data<T>(b), a.cols()};
    with_rows<T>(a.rows(), a.cols(), are_aligned(a, b), kAnyNumber, [&]<int N, bool kIsWarp>(const RowsShape& shape) {
      launch(stream, dot_rows_kernel<T, N, kIsWarp>, shape.launch, device_data<float>(y), terms, a.rows());
    });
  });
}

}  // namespace weft::cuda
