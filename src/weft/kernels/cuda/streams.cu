// Residual streams: a worker has a token, whose streams it reads twice, the second time from a cache. Memory bounds
// all of these; the weights by which streams are mixed are made by a thread for each token.
#include "weft/kernels/cuda/activation.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/shape_checks.h"
#include "weft/kernels/stream_mix.h"

namespace weft::cuda {
namespace {

constexpr int kHeldStreams = int(kMostStreams);  // a number to each stays in registers

// What weights of mixing are made of.
template <class T>
struct OfMix {
  const float *products, *rstd;
  const T *base, *scale;
  int64_t rows;
  int streams, count;
  StreamRule rule;

  __device__ float logit(int64_t row, int m, int n) const {
    const int i = (2 + m) * streams + n;
    return products[row * count + i] * rstd[row] * load(scale + 2) + load(base + i);
  }
};

template <int N>
constexpr int kTokensOfMix = 128 / N;  // of a block, whose divisors fit into what it shares

// body(row, mix, divisors): of this thread's token.
template <int N, class T, class Body>
__device__ void with_mix(const OfMix<T>& a, Body&& body) {
  __shared__ float divisors[num_divisions(int(kMostMixSteps))][N][kTokensOfMix<N>];
  const int64_t row = int64_t(blockIdx.x) * kTokensOfMix<N> + threadIdx.x;
  if (row >= a.rows) return;
  float mix[N][N];
  make_mix(
      mix, a.streams, a.rule.mix_steps, a.rule.eps, [&](int m, int n) { return a.logit(row, m, n); },
      [](float x) { return expf(x); }, [&](int k, int i, float divisor) { divisors[k][i][threadIdx.x] = divisor; });
  body(row, mix, [&](int k, int i) { return divisors[k][i][threadIdx.x]; });
}

template <class T, int N>
__global__ void __launch_bounds__(kTokensOfMix<N>) mix_kernel(const OfMix<T> a, float* mix) {
  with_mix<N>(a, [&](int64_t row, const float(&made)[N][N], const auto&) {
#pragma unroll
    for (int m = 0; m < N; ++m)
#pragma unroll
      for (int n = 0; n < N; ++n)
        if (m < a.streams && n < a.streams) mix[(row * a.streams + m) * a.streams + n] = made[m][n];
  });
}

template <class T, int N>
__global__ void __launch_bounds__(kTokensOfMix<N>)
    mix_backward_kernel(const OfMix<T> a, float* dlogits, const float* dmix) {
  with_mix<N>(a, [&](int64_t row, float(&made)[N][N], const auto& divisors) {
    float gradient[N][N];
#pragma unroll
    for (int m = 0; m < N; ++m)
#pragma unroll
      for (int n = 0; n < N; ++n)
        gradient[m][n] = m < a.streams && n < a.streams ? dmix[(row * a.streams + m) * a.streams + n] : 0;
    make_mix_backward(gradient, made, a.streams, a.rule.mix_steps, a.rule.eps, divisors);
#pragma unroll
    for (int m = 0; m < N; ++m)
#pragma unroll
      for (int n = 0; n < N; ++n)
        if (m < a.streams && n < a.streams) dlogits[row * a.count + (2 + m) * a.streams + n] = gradient[m][n];
  });
}

// run<N>(): with matrices of N in which that of so many streams lies.
template <class Run>
void with_mix_size(int streams, Run&& run) {
  streams <= 4 ? run.template operator()<4>() : run.template operator()<8>();
}
template <int N>
LaunchShape mix_shape(int64_t rows) {
  return {.blocks_x = unsigned(ceil_div(rows, int64_t(kTokensOfMix<N>))), .threads = kTokensOfMix<N>};
}

template <class T>
struct ReadStreams {
  T* y;
  float *gates, *rstd;
  const T *x, *base, *scale;
  const float* products;
  StreamRule rule;
  int64_t rows, cols;
  int streams, count;
};

template <class T, int N, bool kIsWarp>
__global__ void __launch_bounds__(512) read_streams_kernel(const ReadStreams<T> a) {
  const Worker<kIsWarp> worker;
  const int64_t row = worker.index, all = a.cols * a.streams;
  if (row >= a.rows) return;
  const T* const x = a.x + row * all;
  float squares = 0;
  for (int64_t c = worker.rank * N; c < all; c += worker.size * N) {
    float values[N];
    load_n(values, x + c);
    for (int i = 0; i < N; ++i) squares += values[i] * values[i];
  }
  const float rstd = 1 / sqrtf(worker.sum(squares) / float(all) + a.rule.norm_eps);
  if (worker.rank == 0) a.rstd[row] = rstd;
  const auto weight = [&](int i) {
    const float logit = a.products[row * a.count + i] * rstd * load(a.scale + i / a.streams) + load(a.base + i);
    return sigmoid(logit);
  };
  if (a.gates && worker.rank < a.streams)
    a.gates[row * a.streams + worker.rank] =
        a.rule.magnitude * weight(a.streams + int(worker.rank)) + a.rule.gate_eps;
  float read[kHeldStreams];
#pragma unroll
  for (int n = 0; n < kHeldStreams; ++n) read[n] = n < a.streams ? weight(n) + a.rule.eps : 0;
  for (int64_t c = worker.rank * N; c < a.cols; c += worker.size * N) {
    float sum[N] = {};
#pragma unroll
    for (int n = 0; n < kHeldStreams; ++n) {
      if (n >= a.streams) break;
      float values[N];
      load_n(values, x + n * a.cols + c);
      for (int i = 0; i < N; ++i) sum[i] += read[n] * values[i];
    }
    store_n(a.y + row * a.cols + c, sum);
  }
}

template <class T>
struct ReadStreamsBackward {
  T* dx;
  float *dproducts, *dlogits, *dscales;
  const T *dy, *dsum, *x, *base, *scale;
  const float *dgates, *products, *rstd;
  StreamRule rule;
  int64_t rows, cols;
  int streams, count, scales;
  bool has_mix;  // its gradients are among dlogits
};

template <class T, int N, bool kIsWarp>
__global__ void __launch_bounds__(512) read_streams_backward_kernel(const ReadStreamsBackward<T> a) {
  const Worker<kIsWarp> worker;
  const int64_t row = worker.index, all = a.cols * a.streams;
  if (row >= a.rows) return;
  const T *const x = a.x + row * all, *const dy = a.dy + row * a.cols;
  const float rstd = a.rstd[row];
  float dots[kHeldStreams] = {};
  for (int64_t c = worker.rank * N; c < a.cols; c += worker.size * N) {
    float gradient[N];
    load_n(gradient, dy + c);
#pragma unroll
    for (int n = 0; n < kHeldStreams; ++n) {
      if (n >= a.streams) break;
      float values[N];
      load_n(values, x + n * a.cols + c);
      for (int i = 0; i < N; ++i) dots[n] += values[i] * gradient[i];
    }
  }
#pragma unroll
  for (int n = 0; n < kHeldStreams; ++n)
    if (n < a.streams) dots[n] = worker.sum(dots[n]);
  // Every thread works out all weights of its token, which are few.
  float read[kHeldStreams], drstd = 0, dscales[3] = {};
#pragma unroll
  for (int i = 0; i < 2 * kHeldStreams; ++i) {
    const bool writes = i >= kHeldStreams;
    const int n = i % kHeldStreams, at = writes ? a.streams + n : n;
    if (n >= a.streams || at >= a.count) continue;
    const float product = a.products[row * a.count + at], scale = load(a.scale + (writes ? 1 : 0));
    const float s = sigmoid(product * rstd * scale + load(a.base + at));
    float dweight = 0;
    if (!writes)
      read[n] = s + a.rule.eps, dweight = dots[n];
    else if (a.dgates)
      dweight = a.rule.magnitude * a.dgates[row * a.streams + n];
    const float dlogit = dweight * s * (1 - s);
    drstd += dlogit * scale * product;
    dscales[writes ? 1 : 0] += dlogit * product * rstd;
    if (worker.rank == 0) {
      a.dlogits[row * a.count + at] = dlogit;
      a.dproducts[row * a.count + at] = dlogit * scale * rstd;
    }
  }
  for (int i = 2 * a.streams; i < a.count; ++i) {
    const float product = a.products[row * a.count + i], scale = load(a.scale + 2);
    const float dlogit = a.has_mix ? a.dlogits[row * a.count + i] : 0;
    drstd += dlogit * scale * product;
    dscales[2] += dlogit * product * rstd;
    if (worker.rank == 0) {
      if (!a.has_mix) a.dlogits[row * a.count + i] = 0;
      a.dproducts[row * a.count + i] = dlogit * scale * rstd;
    }
  }
#pragma unroll
  for (int i = 0; i < 3; ++i)
    if (worker.rank == 0 && i < a.scales) a.dscales[row * a.scales + i] = dscales[i];
  const float along = -drstd * rstd * rstd * rstd / float(all);
  for (int64_t c = worker.rank * N; c < a.cols; c += worker.size * N) {
    float gradient[N];
    load_n(gradient, dy + c);
#pragma unroll
    for (int n = 0; n < kHeldStreams; ++n) {
      if (n >= a.streams) break;
      const int64_t at = n * a.cols + c;
      float values[N], sum[N] = {};
      load_n(values, x + at);
      if (a.dsum) load_n(sum, a.dsum + row * all + at);
      for (int i = 0; i < N; ++i) sum[i] += read[n] * gradient[i] + along * values[i];
      store_n(a.dx + row * all + at, sum);
    }
  }
}

template <class T>
struct WriteStreams {
  T* y;
  const T *x, *branch;
  const float *gates, *mix;
  int64_t rows, cols;
  int streams;
};

template <class T, int N, bool kIsWarp>
__global__ void __launch_bounds__(512) write_streams_kernel(const WriteStreams<T> a) {
  const Worker<kIsWarp> worker;
  const int64_t row = worker.index;
  if (row >= a.rows) return;
  for (int64_t c = worker.rank * N; c < a.cols; c += worker.size * N) {
    float branch[N];
    load_n(branch, a.branch + row * a.cols + c);
    for (int n = 0; n < a.streams; ++n) {
      const int64_t at = (row * a.streams + n) * a.cols + c;
      const float gate = a.gates ? a.gates[row * a.streams + n] : 1;
      float sum[N] = {};
      if (a.x && !a.mix) load_n(sum, a.x + at);
      for (int m = 0; a.mix && m < a.streams; ++m) {
        const float weight = a.mix[(row * a.streams + m) * a.streams + n];
        float values[N];
        load_n(values, a.x + (row * a.streams + m) * a.cols + c);
        for (int i = 0; i < N; ++i) sum[i] += weight * values[i];
      }
      for (int i = 0; i < N; ++i) sum[i] += gate * branch[i];
      store_n(a.y + at, sum);
    }
  }
}

template <class T>
struct WriteStreamsBackward {
  T *dbranch, *dx;
  float *dgates, *dmix;
  const T *dy, *branch, *x;
  const float *gates, *mix;
  int64_t rows, cols;
  int streams;
};

template <class T, int N, bool kIsWarp>
__global__ void __launch_bounds__(512) write_streams_backward_kernel(const WriteStreamsBackward<T> a) {
  const Worker<kIsWarp> worker;
  const int64_t row = worker.index;
  if (row >= a.rows) return;
  float dots[kHeldStreams] = {};
  for (int64_t c = worker.rank * N; c < a.cols; c += worker.size * N) {
    float branch[N] = {}, sum[N] = {};
    if (a.gates) load_n(branch, a.branch + row * a.cols + c);
#pragma unroll
    for (int n = 0; n < kHeldStreams; ++n) {
      if (n >= a.streams) break;
      const float gate = a.gates ? a.gates[row * a.streams + n] : 1;
      float gradient[N];
      load_n(gradient, a.dy + (row * a.streams + n) * a.cols + c);
      for (int i = 0; i < N; ++i) sum[i] += gate * gradient[i], dots[n] += branch[i] * gradient[i];
    }
    store_n(a.dbranch + row * a.cols + c, sum);
  }
  if (!a.gates) return;
#pragma unroll
  for (int n = 0; n < kHeldStreams; ++n) {
    if (n >= a.streams) break;
    const float dot = worker.sum(dots[n]);
    if (worker.rank == 0) a.dgates[row * a.streams + n] = dot;
  }
}

// What goes through mixing: of one stream after another, with gradients from a cache.
template <class T, int N, bool kIsWarp>
__global__ void __launch_bounds__(512) mix_streams_backward_kernel(const WriteStreamsBackward<T> a) {
  const Worker<kIsWarp> worker;
  const int64_t row = worker.index;
  if (row >= a.rows) return;
  for (int m = 0; m < a.streams; ++m) {
    const int64_t stream = row * a.streams + m;
    float dots[kHeldStreams] = {}, weights[kHeldStreams];
#pragma unroll
    for (int n = 0; n < kHeldStreams; ++n) weights[n] = n < a.streams ? a.mix[stream * a.streams + n] : 0;
    for (int64_t c = worker.rank * N; c < a.cols; c += worker.size * N) {
      float values[N], sum[N] = {};
      load_n(values, a.x + stream * a.cols + c);
#pragma unroll
      for (int n = 0; n < kHeldStreams; ++n) {
        if (n >= a.streams) break;
        float gradient[N];
        load_n(gradient, a.dy + (row * a.streams + n) * a.cols + c);
        for (int i = 0; i < N; ++i) sum[i] += weights[n] * gradient[i], dots[n] += values[i] * gradient[i];
      }
      store_n(a.dx + stream * a.cols + c, sum);
    }
#pragma unroll
    for (int n = 0; n < kHeldStreams; ++n) {
      if (n >= a.streams) break;
      const float dot = worker.sum(dots[n]);
      if (worker.rank == 0) a.dmix[stream * a.streams + n] = dot;
    }
  }
}

// args: of reading, or of its gradients.
template <class T, class Args>
OfMix<T> of_mix(const Args& args, int streams) {
  return {.products = device_data<float>(args.products),
          .rstd = device_data<float>(args.rstd),
          .base = device_data<T>(args.base),
          .scale = device_data<T>(args.scale),
          .rows = args.x.rows(),
          .streams = streams,
          .count = int(args.products.cols()),
          .rule = args.rule};
}

}  // namespace

void read_streams(Stream& stream, const ReadStreamsArgs& args) {
  shapes::check_read_streams(args);
  with_float("read_streams", args.x, [&]<class T>() {
    const ReadStreams<T> a{.y = device_data<T>(args.y),
                           .gates = device_data<float>(args.gates),
                           .rstd = device_data<float>(args.rstd),
                           .x = device_data<T>(args.x),
                           .base = device_data<T>(args.base),
                           .scale = device_data<T>(args.scale),
                           .products = device_data<float>(args.products),
                           .rule = args.rule,
                           .rows = args.x.rows(),
                           .cols = args.y.cols(),
                           .streams = int(args.x.cols() / args.y.cols()),
                           .count = int(args.products.cols())};
    with_rows<T>(a.rows, a.cols, are_aligned(args.y, args.x), kAnyNumber,
                 [&]<int N, bool kIsWarp>(const RowsShape& shape) {
                   launch(stream, read_streams_kernel<T, N, kIsWarp>, shape.launch, a);
                 });
    if (!args.mix) return;
    with_mix_size(a.streams, [&]<int N>() {
      launch(stream, mix_kernel<T, N>, mix_shape<N>(a.rows), of_mix<T>(args, a.streams),
             device_data<float>(args.mix));
    });
  });
}

void read_streams_backward(Stream& stream, const ReadStreamsBackwardArgs& args) {
  shapes::check_read_streams_backward(args);
  with_float("read_streams_backward", args.x, [&]<class T>() {
    const ReadStreamsBackward<T> a{.dx = device_data<T>(args.dx),
                                   .dproducts = device_data<float>(args.dproducts),
                                   .dlogits = device_data<float>(args.dlogits),
                                   .dscales = device_data<float>(args.dscales),
                                   .dy = device_data<T>(args.dy),
                                   .dsum = device_data<T>(args.dsum),
                                   .x = device_data<T>(args.x),
                                   .base = device_data<T>(args.base),
                                   .scale = device_data<T>(args.scale),
                                   .dgates = device_data<float>(args.dgates),
                                   .products = device_data<float>(args.products),
                                   .rstd = device_data<float>(args.rstd),
                                   .rule = args.rule,
                                   .rows = args.x.rows(),
                                   .cols = args.dy.cols(),
                                   .streams = int(args.x.cols() / args.dy.cols()),
                                   .count = int(args.products.cols()),
                                   .scales = int(args.dscales.cols()),
                                   .has_mix = bool(args.dmix)};
    if (a.has_mix)
      with_mix_size(a.streams, [&]<int N>() {
        launch(stream, mix_backward_kernel<T, N>, mix_shape<N>(a.rows), of_mix<T>(args, a.streams), a.dlogits,
               device_data<float>(args.dmix));
      });
    with_rows<T>(a.rows, a.cols, are_aligned(args.dx, args.dy, args.dsum, args.x), kAnyNumber,
                 [&]<int N, bool kIsWarp>(const RowsShape& shape) {
                   launch(stream, read_streams_backward_kernel<T, N, kIsWarp>, shape.launch, a);
                 });
  });
}

void write_streams(Stream& stream, const WriteStreamsArgs& args) {
  shapes::check_write_streams(args);
  with_float("write_streams", args.y, [&]<class T>() {
    const WriteStreams<T> a{.y = device_data<T>(args.y),
                            .x = device_data<T>(args.x),
                            .branch = device_data<T>(args.branch),
                            .gates = device_data<float>(args.gates),
                            .mix = device_data<float>(args.mix),
                            .rows = args.y.rows(),
                            .cols = args.branch.cols(),
                            .streams = int(args.y.cols() / args.branch.cols())};
    with_rows<T>(a.rows, a.cols, are_aligned(args.y, args.x, args.branch), kAnyNumber,
                 [&]<int N, bool kIsWarp>(const RowsShape& shape) {
                   launch(stream, write_streams_kernel<T, N, kIsWarp>, shape.launch, a);
                 });
  });
}

void write_streams_backward(Stream& stream, const WriteStreamsBackwardArgs& args) {
  shapes::check_write_streams_backward(args);
  with_float("write_streams_backward", args.dy, [&]<class T>() {
    const WriteStreamsBackward<T> a{.dbranch = device_data<T>(args.dbranch),
                                    .dx = device_data<T>(args.dx),
                                    .dgates = device_data<float>(args.dgates),
                                    .dmix = device_data<float>(args.dmix),
                                    .dy = device_data<T>(args.dy),
                                    .branch = device_data<T>(args.branch),
                                    .x = device_data<T>(args.x),
                                    .gates = device_data<float>(args.gates),
                                    .mix = device_data<float>(args.mix),
                                    .rows = args.dy.rows(),
                                    .cols = args.dbranch.cols(),
                                    .streams = int(args.dy.cols() / args.dbranch.cols())};
    with_rows<T>(a.rows, a.cols, are_aligned(args.dbranch, args.dy, args.branch, args.x, args.dx), kAnyNumber,
                 [&]<int N, bool kIsWarp>(const RowsShape& shape) {
                   launch(stream, write_streams_backward_kernel<T, N, kIsWarp>, shape.launch, a);
                   if (a.mix) launch(stream, mix_streams_backward_kernel<T, N, kIsWarp>, shape.launch, a);
                 });
  });
}

}  // namespace weft::cuda
