// Element-wise ops: each reads and writes every element once, so memory bounds them.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/vectors.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

// S: of y and a
template <class S, class T>
struct Add {
  S* y;
  const S* a;
  const T* b;

  template <int N>
  __device__ void at(int64_t i) const {
    float sum[N], x[N];
    load_n(sum, a + i);
    load_n(x, b + i);
    for (int j = 0; j < N; ++j) sum[j] += x[j];
    store_n(y + i, sum);
  }
};

template <class T>
struct Scale {
  T* y;
  const T* x;
  float factor;

  template <int N>
  __device__ void at(int64_t i) const {
    float a[N];
    load_n(a, x + i);
    for (int j = 0; j < N; ++j) a[j] *= factor;
    store_n(y + i, a);
  }
};

template <class Y, class X>
struct Convert {
  Y* y;
  const X* x;

  template <int N>
  __device__ void at(int64_t i) const {
    if constexpr (N == 1) {
      store(y + i, load(x + i));
    } else {
      float a[N];
      load_n(a, x + i);
      store_n(y + i, a);
    }
  }
};

template <class T>
struct Fill {
  T* y;
  float value;

  template <int N>
  __device__ void at(int64_t i) const {
    if constexpr (N == 1) {
      store(y + i, value);
    } else {
      float a[N];
      for (int j = 0; j < N; ++j) a[j] = value;
      store_n(y + i, a);
    }
  }
};

}  // namespace

void add(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  shapes::check_alike("add", {{"y", y}, {"a", a}, {"b", b}});
  with_float("add", y, [&]<class T>() {
    const Add<T, T> op{device_data<T>(y), device_data<T>(a), device_data<T>(b)};
    for_elements<T>(stream, op, y.numel(), are_aligned(y, a, b));
  });
}

void accumulate(Stream& stream, const Tensor& sum, const Tensor& x) {
  shapes::check_accumulate(sum, x);
  with_float("accumulate", x, [&]<class T>() {
    const Add<float, T> op{device_data<float>(sum), device_data<float>(sum), device_data<T>(x)};
    for_elements<T, float>(stream, op, x.numel(), are_aligned(sum, x));
  });
}

void scale(Stream& stream, const Tensor& y, const Tensor& x, float factor) {
  shapes::check_alike("scale", {{"y", y}, {"x", x}});
  with_float("scale", y, [&]<class T>() {
    const Scale<T> op{device_data<T>(y), device_data<T>(x), factor};
    for_elements<T>(stream, op, y.numel(), are_aligned(y, x));
  });
}

void convert(Stream& stream, const Tensor& y, const Tensor& x) {
  shapes::check_convert(y, x);
  with_any_float("convert", y, [&]<class Y>() {
    with_any_float("convert", x, [&]<class X>() {
      const Convert<Y, X> op{device_data<Y>(y), device_data<X>(x)};
      if constexpr (sizeof(Y) == 8 || sizeof(X) == 8)
        launch(stream, elements_kernel<1, Convert<Y, X>>, over_elements(y.numel()), op, y.numel());
      else
        for_elements<Y, X>(stream, op, y.numel(), are_aligned(y, x));
    });
  });
}

void fill(Stream& stream, const Tensor& y, float value) {
  shapes::check_fill(y);
  with_any_float("fill", y, [&]<class T>() {
    const Fill<T> op{device_data<T>(y), value};
    if constexpr (sizeof(T) == 8)
      launch(stream, elements_kernel<1, Fill<T>>, over_elements(y.numel()), op, y.numel());
    else
      for_elements<T>(stream, op, y.numel(), are_aligned(y));
  });
}

}  // namespace weft::cuda
