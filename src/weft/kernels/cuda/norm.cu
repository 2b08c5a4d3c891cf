// RMS and layer norms, with the residual addition before them, and their gradients. Memory bounds them: the forward
// reads and writes every element once, and so does the backward, which adds up parameters' gradients as it goes.
#include "weft/kernels/cuda/column_sums.cuh"
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T>
struct Norm {
  T *y, *sum;
  float *mean, *rstd;
  const T *x, *residual, *weight, *bias;
  float eps, weight_offset;
  int64_t rows, cols;
};

// Elements of a row that a thread of a warp holds. Rows that fit are a warp's: nobody waits for other warps.
constexpr int kOfWarp = 64;

template <class T, int N, bool kIsWarp>
__global__ void __launch_bounds__(512) norm_kernel(const Norm<T> a) {
  constexpr int kHeld = N == 1 ? 12 : (kIsWarp ? kOfWarp : 32) / N;  // parts of a row in registers
  if (N > 1 && blockIdx.x == 0 && threadIdx.x == 0) fetch_ahead(a.weight, uint32_t(a.cols * int64_t(sizeof(T))));
  follow();
  const Worker<kIsWarp> worker;
  const int64_t row = worker.index, begin = row * a.cols;
  if (row >= a.rows) return;
  float held[kHeld][N];
  // What is normalised; later parts are read again.
  const T* const from = a.residual ? a.sum : a.x;
  const auto part = [&](int64_t c, int j, float(&x)[N]) {
    if (j == kHeld)
      load_n(x, from + begin + c);
    else
      for (int i = 0; i < N; ++i) x[i] = held[j][i];
  };
  float total = 0;
  for_parts<N, kHeld>(worker, a.cols, [&](int64_t c, int j) {
    float x[N];
    load_n(x, a.x + begin + c);
    if (a.residual) {
      float other[N];
      load_n(other, a.residual + begin + c);
      for (int i = 0; i < N; ++i) x[i] = rounded<T>(x[i] + other[i]);
      store_n(a.sum + begin + c, x);
    }
    for (int i = 0; i < N; ++i) total += a.mean ? x[i] : x[i] * x[i];
    if (j < kHeld)
      for (int i = 0; i < N; ++i) held[j][i] = x[i];
  });
  total = worker.sum(total);
  float mean = 0;
  if (a.mean) {
    mean = total / float(a.cols);
    total = 0;
    for_parts<N, kHeld>(worker, a.cols, [&](int64_t c, int j) {
      float x[N];
      part(c, j, x);
      for (int i = 0; i < N; ++i) total += (x[i] - mean) * (x[i] - mean);
    });
    total = worker.sum(total);
  }
  const float rstd = 1 / sqrtf(total / float(a.cols) + a.eps);
  if (worker.rank == 0) {
    a.rstd[row] = rstd;
    if (a.mean) a.mean[row] = mean;
  }
  for_parts<N, kHeld>(worker, a.cols, [&](int64_t c, int j) {
    float x[N], weight[N], bias[N] = {};
    part(c, j, x);
    load_n(weight, a.weight + c);
    if (a.bias) load_n(bias, a.bias + c);
    for (int i = 0; i < N; ++i) x[i] = (x[i] - mean) * rstd * (weight[i] + a.weight_offset) + bias[i];
    store_n(a.y + begin + c, x);
  });
}

template <class T>
struct NormBackward {
  T* dx;
  float *dweight, *dbias;  // of every worker, [num_workers, cols]; optional
  const T *dy, *dsum, *x, *weight;
  const float *mean, *rstd;  // mean only for layer
  float weight_offset;
  int64_t rows, cols, num_workers;
};

// With n = (x - mean) rstd and g = dy weight:  dx = rstd (g - mean(g) - n mean(g n)); mean(g) only for layer.
// kHeld: parts of a row that a thread has in registers; where that is one, four blocks of 256 share a multiprocessor.
template <class T, int N, bool kIsWarp, int kHeld>
__global__ void __launch_bounds__(512, kHeld == 1 ? 2 : 1) norm_backward_kernel(const NormBackward<T> a) {
  const Worker<kIsWarp> worker;
  float *const dweight = a.dweight + worker.index * a.cols, *const dbias = a.dbias + worker.index * a.cols;
  float held_n[kHeld][N], held_dy[kHeld][N], dweights[kHeld][N] = {}, dbiases[kHeld][N] = {};
  for (int64_t row = worker.index; row < a.rows; row += a.num_workers) {
    const int64_t begin = row * a.cols;
    const float mean = a.mean ? a.mean[row] : 0, rstd = a.rstd[row];
    const auto load_part = [&](int64_t c, float(&n)[N], float(&dy)[N]) {
      load_n(n, a.x + begin + c);
      load_n(dy, a.dy + begin + c);
      for (int i = 0; i < N; ++i) n[i] = (n[i] - mean) * rstd;
    };
    float sum_g = 0, sum_gn = 0;
    for_parts<N, kHeld>(worker, a.cols, [&](int64_t c, int j) {
      float n[N], dy[N], weight[N];
      load_part(c, n, dy);
      load_n(weight, a.weight + c);
      for (int i = 0; i < N; ++i) {
        const float g = dy[i] * (weight[i] + a.weight_offset);
        sum_g += g, sum_gn += g * n[i];
      }
      for (int i = 0; i < N && j < kHeld; ++i) {
        held_n[j][i] = n[i], held_dy[j][i] = dy[i];
        dweights[j][i] += dy[i] * n[i], dbiases[j][i] += dy[i];
      }
      // What does not fit into registers adds up in memory, where no other thread has these columns.
      for (int i = 0; i < N && j == kHeld; ++i) {
        const bool is_first = row == worker.index;
        if (a.dweight) dweight[c + i] = dy[i] * n[i] + (is_first ? 0 : dweight[c + i]);
        if (a.dbias) dbias[c + i] = dy[i] + (is_first ? 0 : dbias[c + i]);
      }
    });
    worker.sum_both(sum_g, sum_gn);
    const float mean_g = a.mean ? sum_g / float(a.cols) : 0, mean_gn = sum_gn / float(a.cols);
    for_parts<N, kHeld>(worker, a.cols, [&](int64_t c, int j) {
      float n[N], dy[N], weight[N], dx[N] = {};
      if (j == kHeld)
        load_part(c, n, dy);
      else
        for (int i = 0; i < N; ++i) n[i] = held_n[j][i], dy[i] = held_dy[j][i];
      load_n(weight, a.weight + c);
      if (a.dsum) load_n(dx, a.dsum + begin + c);
      for (int i = 0; i < N; ++i) dx[i] += rstd * (dy[i] * (weight[i] + a.weight_offset) - mean_g - n[i] * mean_gn);
      store_n(a.dx + begin + c, dx);
    });
  }
  for_parts<N, kHeld>(worker, min(a.cols, kHeld * worker.size * N), [&](int64_t c, int j) {
    if (a.dweight) store_n(dweight + c, dweights[j]);
    if (a.dbias) store_n(dbias + c, dbiases[j]);
  });
}

}  // namespace

void norm(Stream& stream, const NormArgs& args) {
  shapes::check_norm(args);
  with_float("norm", args.x, [&]<class T>() {
    const Norm<T> a{.y = device_data<T>(args.y),
                    .sum = device_data<T>(args.sum),
                    .mean = args.kind == NormKind::layer ? device_data<float>(args.mean) : nullptr,
                    .rstd = device_data<float>(args.rstd),
                    .x = device_data<T>(args.x),
                    .residual = device_data<T>(args.residual),
                    .weight = device_data<T>(args.weight),
                    .bias = device_data<T>(args.bias),
                    .eps = args.eps,
                    .weight_offset = args.weight_offset,
                    .rows = args.x.rows(),
                    .cols = args.x.cols()};
    with_rows<T>(
        a.rows, a.cols, are_aligned(args.y, args.sum, args.x, args.residual, args.weight, args.bias), kAnyNumber,
        [&]<int N, bool kIsWarp>(const RowsShape& shape) {
          launch_following(stream, norm_kernel<T, N, kIsWarp>, shape.launch, a);
        },
        kOfWarp / kVector<T>);
  });
}

void norm_backward(Stream& stream, const NormBackwardArgs& args) {
  shapes::check_norm_backward(args);
  constexpr int64_t kMostBlocks = 528;  // a few to a multiprocessor; their workers have a row of partial sums each
  const int64_t rows = args.x.rows(), cols = args.x.cols();
  with_float("norm_backward", args.x, [&]<class T>() {
    NormBackward<T> a{.dx = device_data<T>(args.dx),
                      .dy = device_data<T>(args.dy),
                      .dsum = device_data<T>(args.dsum),
                      .x = device_data<T>(args.x),
                      .weight = device_data<T>(args.weight),
                      .mean = args.kind == NormKind::layer ? device_data<float>(args.mean) : nullptr,
                      .rstd = device_data<float>(args.rstd),
                      .weight_offset = args.weight_offset,
                      .rows = rows,
                      .cols = cols};
    with_rows<T>(rows, cols, are_aligned(args.dx, args.dy, args.dsum, args.x, args.weight), kMostBlocks,
                 [&]<int N, bool kIsWarp>(const RowsShape& shape) {
                   a.num_workers = shape.num_workers;
                   const Tensor dweights = args.dweight ? partial_sums(stream, shape.num_workers, cols) : Tensor();
                   const Tensor dbiases = args.dbias ? partial_sums(stream, shape.num_workers, cols) : Tensor();
                   a.dweight = device_data<float>(dweights), a.dbias = device_data<float>(dbiases);
                   constexpr int kHeld = N == 1 ? 6 : 16 / N;
                   auto* kernel = norm_backward_kernel<T, N, kIsWarp, kHeld>;
                   if constexpr (!kIsWarp && N > 1)
                     if (cols <= int64_t(shape.launch.threads) * N) kernel = norm_backward_kernel<T, N, kIsWarp, 1>;
                   launch(stream, kernel, shape.launch, a);
                   const auto add_up = [&](const Tensor& sums, const float* parts) {
                     if (sums)
                       sum_columns<1>(stream, device_data<float>(sums), ElementTerms<float>{parts, cols},
                                      a.num_workers, cols, args.accumulate);
                   };
                   add_up(args.dweight, a.dweight);
                   add_up(args.dbias, a.dbias);
                 });
  });
}

}  // namespace weft::cuda
