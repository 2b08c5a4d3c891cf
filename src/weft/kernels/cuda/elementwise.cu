// Element-wise ops: each reads and writes every element once, so memory bounds them.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/values.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T>
__global__ void add_kernel(T* y, const T* a, const T* b, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) store(y + i, load(a + i) + load(b + i));
}

template <class T>
__global__ void accumulate_kernel(float* sum, const T* x, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) sum[i] += load(x + i);
}

template <class T>
__global__ void scale_kernel(T* y, const T* x, float factor, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) store(y + i, load(x + i) * factor);
}

template <class Y, class X>
__global__ void convert_kernel(Y* y, const X* x, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) store(y + i, load(x + i));
}

template <class T>
__global__ void fill_kernel(T* y, float value, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) store(y + i, value);
}

}  // namespace

void add(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  shapes::check_alike("add", {{"y", y}, {"a", a}, {"b", b}});
  with_float("add", y, [&]<class T>() {
    launch(stream, add_kernel<T>, over_elements(y.numel()), device_data<T>(y), device_data<T>(a), device_data<T>(b),
           y.numel());
  });
}

void accumulate(Stream& stream, const Tensor& sum, const Tensor& x) {
  shapes::check_accumulate(sum, x);
  with_float("accumulate", x, [&]<class T>() {
    launch(stream, accumulate_kernel<T>, over_elements(x.numel()), device_data<float>(sum), device_data<T>(x),
           x.numel());
  });
}

void scale(Stream& stream, const Tensor& y, const Tensor& x, float factor) {
  shapes::check_alike("scale", {{"y", y}, {"x", x}});
  with_float("scale", y, [&]<class T>() {
    launch(stream, scale_kernel<T>, over_elements(y.numel()), device_data<T>(y), device_data<T>(x), factor,
           y.numel());
  });
}

void convert(Stream& stream, const Tensor& y, const Tensor& x) {
  shapes::check_convert(y, x);
  with_any_float("convert", y, [&]<class Y>() {
    with_any_float("convert", x, [&]<class X>() {
      launch(stream, convert_kernel<Y, X>, over_elements(y.numel()), device_data<Y>(y), device_data<X>(x), y.numel());
    });
  });
}

void fill(Stream& stream, const Tensor& y, float value) {
  shapes::check_fill(y);
  with_any_float("fill", y, [&]<class T>() {
    launch(stream, fill_kernel<T>, over_elements(y.numel()), device_data<T>(y), value, y.numel());
  });
}

}  // namespace weft::cuda
