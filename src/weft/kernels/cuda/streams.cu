// Residual streams: a worker has a token, whose streams it reads twice, the second time from a cache. Memory bounds
// all of these.
#include "weft/kernels/cuda/activation.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

constexpr int kHeldStreams = int(kMostStreams);  // a number to each stays in registers

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
    a.gates[row * a.streams + worker.rank] = a.rule.magnitude * weight(a.streams + int(worker.rank)) + a.rule.eps;
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
  int streams, count;
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
  float read[kHeldStreams], drstd = 0, dscales[2] = {};
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
  if (worker.rank == 0)
    for (int i = 0; i < a.count / a.streams; ++i) a.dscales[row * (a.count / a.streams) + i] = dscales[i];
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
  const float* gates;
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
      if (a.x) load_n(sum, a.x + at);
      for (int i = 0; i < N; ++i) sum[i] += gate * branch[i];
      store_n(a.y + at, sum);
    }
  }
}

template <class T>
struct WriteStreamsBackward {
  T* dbranch;
  float* dgates;
  const T *dy, *branch;
  const float* gates;
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
                                   .count = int(args.products.cols())};
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
                                    .dgates = device_data<float>(args.dgates),
                                    .dy = device_data<T>(args.dy),
                                    .branch = device_data<T>(args.branch),
                                    .gates = device_data<float>(args.gates),
                                    .rows = args.dy.rows(),
                                    .cols = args.dbranch.cols(),
                                    .streams = int(args.dy.cols() / args.dbranch.cols())};
    with_rows<T>(a.rows, a.cols, are_aligned(args.dbranch, args.dy, args.branch), kAnyNumber,
                 [&]<int N, bool kIsWarp>(const RowsShape& shape) {
                   launch(stream, write_streams_backward_kernel<T, N, kIsWarp>, shape.launch, a);
                 });
  });
}

}  // namespace weft::cuda
