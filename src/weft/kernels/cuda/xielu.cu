// xIELU, and its gradients: memory bounds both, every element is read and written once.
#include "weft/kernels/cuda/activation.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

template <class T>
struct Xielu {
  T* y;
  const T *x, *positive, *negative;

  template <int N>
  __device__ void at(int64_t i) const {
    const float above = softplus(load(positive)), below = 0.5f + softplus(load(negative));
    float a[N];
    load_n(a, x + i);
    for (int j = 0; j < N; ++j) a[j] = (a[j] > 0 ? above * a[j] * a[j] : below * (expm1f(a[j]) - a[j])) + 0.5f * a[j];
    store_n(y + i, a);
  }
};

template <class T>
struct XieluBackward {
  T* dx;
  float *dpositive, *dnegative;
  const T *dy, *x, *positive, *negative;
  int64_t rows, cols;
};

template <class T, int N, bool kIsWarp>
__global__ void xielu_backward_kernel(const XieluBackward<T> a) {
  const Worker<kIsWarp> worker;
  if (worker.index >= a.rows) return;
  const float positive = load(a.positive), negative = load(a.negative);
  const float above = softplus(positive), below = 0.5f + softplus(negative);
  const int64_t begin = worker.index * a.cols;
  float dp = 0, dn = 0;
  for (int64_t c = worker.rank * N; c < a.cols; c += worker.size * N) {
    float v[N], d[N];
    load_n(v, a.x + begin + c);
    load_n(d, a.dy + begin + c);
    for (int i = 0; i < N; ++i) {
      const float e = expm1f(fminf(v[i], 0.0f));
      if (v[i] > 0)
        dp += d[i] * v[i] * v[i];
      else
        dn += d[i] * (e - v[i]);
      d[i] *= (v[i] > 0 ? 2 * above * v[i] : below * e) + 0.5f;
    }
    store_n(a.dx + begin + c, d);
  }
  if (!a.dpositive) return;
  worker.sum_both(dp, dn);
  // The slope of softplus is a sigmoid.
  if (worker.rank == 0)
    a.dpositive[worker.index] = dp * sigmoid(positive), a.dnegative[worker.index] = dn * sigmoid(negative);
}

}  // namespace

void xielu(Stream& stream, const Tensor& y, const Tensor& x, const Tensor& positive, const Tensor& negative) {
  shapes::check_xielu(y, x, positive, negative);
  with_float("xielu", x, [&]<class T>() {
    const Xielu<T> op{device_data<T>(y), device_data<T>(x), device_data<T>(positive), device_data<T>(negative)};
    for_elements<T>(stream, op, x.numel(), are_aligned(y, x));
  });
}

void xielu_backward(Stream& stream, const Tensor& dx, const Tensor& dpositive, const Tensor& dnegative,
                    const Tensor& dy, const Tensor& x, const Tensor& positive, const Tensor& negative) {
  shapes::check_xielu_backward(dx, dpositive, dnegative, dy, x, positive, negative);
  with_float("xielu_backward", x, [&]<class T>() {
    const XieluBackward<T> a{.dx = device_data<T>(dx),
                             .dpositive = device_data<float>(dpositive),
                             .dnegative = device_data<float>(dnegative),
                             .dy = device_data<T>(dy),
                             .x = device_data<T>(x),
                             .positive = device_data<T>(positive),
                             .negative = device_data<T>(negative),
                             .rows = x.rows(),
                             .cols = x.cols()};
    with_rows<T>(a.rows, a.cols, are_aligned(dx, dy, x), kAnyNumber,
                 [&]<int N, bool kIsWarp>(const RowsShape& shape) {
                   launch(stream, xielu_backward_kernel<T, N, kIsWarp>, shape.launch, a);
                 });
  });
}

}  // namespace weft::cuda
