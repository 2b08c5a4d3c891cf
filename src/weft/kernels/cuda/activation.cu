// Activation functions, their gated forms and gradients: memory bounds them, every element is read and written once.
#include "weft/kernels/cuda/activation.cuh"

#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/vectors.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T>
struct Activate {
  T* y;
  const T* x;
  Activation f;

  template <int N>
  __device__ void at(int64_t i) const {
    float a[N];
    load_n(a, x + i);
    for (int j = 0; j < N; ++j) a[j] = activate(f, a[j]);
    store_n(y + i, a);
  }
};

template <class T>
struct ActivateBackward {
  T* dx;
  const T *dy, *x;
  Activation f;

  template <int N>
  __device__ void at(int64_t i) const {
    float a[N], d[N];
    load_n(a, x + i);
    load_n(d, dy + i);
    for (int j = 0; j < N; ++j) d[j] *= activation_slope(f, a[j]);
    store_n(dx + i, d);
  }
};

template <class T>
struct Gate {
  T* y;
  const T *gate, *up;
  Activation f;

  template <int N>
  __device__ void at(int64_t i) const {
    float g[N], u[N];
    load_n(g, gate + i);
    load_n(u, up + i);
    for (int j = 0; j < N; ++j) u[j] = gating_up(f, u[j]) * activate(f, g[j]);
    store_n(y + i, u);
  }
};

template <class T>
struct GateBackward {
  T *dgate, *dup;
  const T *dy, *gate, *up;
  Activation f;

  template <int N>
  __device__ void at(int64_t i) const {
    float d[N], g[N], u[N];
    load_n(d, dy + i);
    load_n(g, gate + i);
    load_n(u, up + i);
    for (int j = 0; j < N; ++j) {
      const float slope = gating_slope(f, u[j]);
      u[j] = gating_up(f, u[j]) * (d[j] * activation_slope(f, g[j]));
      d[j] *= activate(f, g[j]) * slope;
    }
    store_n(dgate + i, u);
    store_n(dup + i, d);
  }
};

template <class T>
struct Softcap {
  T* y;
  const T* x;
  float cap;

  template <int N>
  __device__ void at(int64_t i) const {
    float a[N];
    load_n(a, x + i);
    for (int j = 0; j < N; ++j) a[j] = cap * tanhf(a[j] / cap);
    store_n(y + i, a);
  }
};

template <class T>
struct SoftcapBackward {
  T* dx;
  const T *dy, *y;
  float cap;

  template <int N>
  __device__ void at(int64_t i) const {
    float a[N], d[N];
    load_n(a, y + i);
    load_n(d, dy + i);
    for (int j = 0; j < N; ++j) d[j] *= 1 - a[j] / cap * (a[j] / cap);
    store_n(dx + i, d);
  }
};

}  // namespace

void activation(Stream& stream, const Tensor& y, const Tensor& x, Activation f) {
  shapes::check_alike("activation", {{"x", x}, {"y", y}});
  with_float("activation", x, [&]<class T>() {
    const Activate<T> op{device_data<T>(y), device_data<T>(x), f};
    for_elements<T>(stream, op, x.numel(), are_aligned(y, x));
  });
}

void activation_backward(Stream& stream, const Tensor& dx, const Tensor& dy, const Tensor& x, Activation f) {
  shapes::check_alike("activation_backward", {{"x", x}, {"dy", dy}, {"dx", dx}});
  with_float("activation_backward", x, [&]<class T>() {
    const ActivateBackward<T> op{device_data<T>(dx), device_data<T>(dy), device_data<T>(x), f};
    for_elements<T>(stream, op, x.numel(), are_aligned(dx, dy, x));
  });
}

void gated_activation(Stream& stream, const Tensor& y, const Tensor& gate, const Tensor& up, Activation f) {
  shapes::check_alike("gated_activation", {{"gate", gate}, {"up", up}, {"y", y}});
  with_float("gated_activation", y, [&]<class T>() {
    const Gate<T> op{device_data<T>(y), device_data<T>(gate), device_data<T>(up), f};
    for_elements<T>(stream, op, y.numel(), are_aligned(y, gate, up));
  });
}

void gated_activation_backward(Stream& stream, const Tensor& dgate, const Tensor& dup, const Tensor& dy,
                               const Tensor& gate, const Tensor& up, Activation f) {
  shapes::check_alike("gated_activation_backward",
                      {{"gate", gate}, {"up", up}, {"dy", dy}, {"dgate", dgate}, {"dup", dup}});
  with_float("gated_activation_backward", dy, [&]<class T>() {
    const GateBackward<T> op{device_data<T>(dgate), device_data<T>(dup), device_data<T>(dy),
                             device_data<T>(gate),  device_data<T>(up),  f};
    for_elements<T>(stream, op, dy.numel(), are_aligned(dgate, dup, dy, gate, up));
  });
}

void softcap(Stream& stream, const Tensor& y, const Tensor& x, float cap) {
  shapes::check_alike("softcap", {{"x", x}, {"y", y}});
  with_float("softcap", x, [&]<class T>() {
    const Softcap<T> op{device_data<T>(y), device_data<T>(x), cap};
    for_elements<T>(stream, op, x.numel(), are_aligned(y, x));
  });
}

void softcap_backward(Stream& stream, const Tensor& dx, const Tensor& dy, const Tensor& y, float cap) {
  shapes::check_alike("softcap_backward", {{"y", y}, {"dy", dy}, {"dx", dx}});
  with_float("softcap_backward", y, [&]<class T>() {
    const SoftcapBackward<T> op{device_data<T>(dx), device_data<T>(dy), device_data<T>(y), cap};
    for_elements<T>(stream, op, y.numel(), are_aligned(dx, dy, y));
  });
}

}  // namespace weft::cuda
