// Cross entropy of a softmax, and its gradient in place of the logits: a row is read once for its log-sum-exp, and
// its gradient once more, from the L2 where a row lies that was just read.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

struct RowStats {
  float top, sum;  // the maximum and the sum of exp(logit - maximum)
};

// Logits of -infinity add nothing, also where there are no others.
__device__ __forceinline__ float part_of_sum(float sum, float top, float top_of_all) {
  return sum > 0 ? sum * expf(top - top_of_all) : sum;
}

template <int N, class T, bool kIsWarp>
__device__ RowStats stats_of(const Worker<kIsWarp>& worker, const T* row, int64_t cols) {
  float top = -INFINITY, sum = 0;
  for (int64_t c = worker.rank * N; c < cols; c += worker.size * N) {
    float x[N];
    load_n(x, row + c);
    float high = top;
    for (int i = 0; i < N; ++i) high = fmaxf(high, x[i]);
    sum = part_of_sum(sum, top, high), top = high;
    for (int i = 0; i < N; ++i) sum += x[i] == -INFINITY ? 0 : expf(x[i] - high);
  }
  const float top_of_all = worker.max(top);
  return {top_of_all, worker.sum(part_of_sum(sum, top, top_of_all))};
}

// logits become (exp(logit - lse) - one_hot) * scale, or 0 without a target; `target` counts from the first column
// here.
template <int N, class T, bool kIsWarp>
__device__ void make_gradient(const Worker<kIsWarp>& worker, T* row, int64_t cols, float lse, bool has_target,
                              int64_t target, float scale) {
  for (int64_t c = worker.rank * N; c < cols; c += worker.size * N) {
    float x[N];
    load_n(x, row + c);
    for (int i = 0; i < N; ++i)
      x[i] = has_target ? (expf(x[i] - lse) - (c + i == target ? 1.0f : 0.0f)) * scale : 0.0f;
    store_n(row + c, x);
  }
}

template <class T, int N, bool kIsWarp>
__global__ void cross_entropy_kernel(float* losses, T* logits, const int32_t* targets, int64_t rows, int64_t cols,
                                     float scale) {
  const Worker<kIsWarp> worker;
  if (worker.index >= rows) return;
  T* const row = logits + worker.index * cols;
  const int32_t target = targets[worker.index];
  float lse = 0;
  if (target >= 0) {
    const RowStats stats = stats_of<N>(worker, row, cols);
    lse = stats.top + logf(stats.sum);
  }
  if (worker.rank == 0) losses[worker.index] = target >= 0 ? lse - load(row + target) : 0.0f;
  if (scale == 0) return;
  worker.sync();  // the target's logit has been read
  make_gradient<N>(worker, row, cols, lse, target >= 0, target, scale);
}

template <class T, int N, bool kIsWarp>
__global__ void stats_kernel(float* stats, const T* logits, const int32_t* targets, int64_t first_column,
                             int64_t rows, int64_t cols) {
  const Worker<kIsWarp> worker;
  if (worker.index >= rows) return;
  const T* const row = logits + worker.index * cols;
  const RowStats found = stats_of<N>(worker, row, cols);
  if (worker.rank != 0) return;
  const int64_t target = targets[worker.index] - first_column;
  float* const to = stats + worker.index * 3;
  to[0] = found.top, to[1] = found.sum;
  to[2] = target >= 0 && target < cols ? load(row + target) : 0.0f;
}

__global__ void combine_kernel(float* losses, float* lse, const float* stats, const int32_t* targets, int64_t parts,
                               int64_t tokens) {
  for (int64_t t = first_element(); t < tokens; t += element_stride()) {
    float top = -INFINITY, sum = 0, target = 0;
    for (int64_t p = 0; p < parts; ++p) top = fmaxf(top, stats[(p * tokens + t) * 3]);
    for (int64_t p = 0; p < parts; ++p) {
      const float* const stat = stats + (p * tokens + t) * 3;
      sum += part_of_sum(stat[1], stat[0], top);
      target += stat[2];
    }
    lse[t] = top + logf(sum);
    losses[t] = targets[t] < 0 ? 0.0f : lse[t] - target;
  }
}

template <class T, int N, bool kIsWarp>
__global__ void gradient_kernel(T* logits, const float* lse, const float* factors, const int32_t* targets,
                                int64_t first_column, int64_t rows, int64_t cols, float scale) {
  const Worker<kIsWarp> worker;
  if (worker.index >= rows) return;
  const int32_t target = targets[worker.index];
  if (factors) scale *= factors[worker.index];
  make_gradient<N>(worker, logits + worker.index * cols, cols, lse[worker.index], target >= 0, target - first_column,
                   scale);
}

}  // namespace

void cross_entropy(Stream& stream, const Tensor& losses, const Tensor& logits, const int32_t* targets,
                   float dlogits_scale) {
  shapes::check_cross_entropy(losses, logits, targets);
  const int64_t rows = logits.dim(0), cols = logits.dim(1);
  if (rows == 0) return;
  const int32_t* const targets_there = upload(stream, targets, rows);
  with_float("cross_entropy", logits, [&]<class T>() {
    with_rows<T>(rows, cols, are_aligned(logits), kAnyNumber, [&]<int N, bool kIsWarp>(const RowsShape& shape) {
      launch(stream, cross_entropy_kernel<T, N, kIsWarp>, shape.launch, device_data<float>(losses),
             device_data<T>(logits), targets_there, rows, cols, dlogits_scale);
    });
  });
}

void cross_entropy_stats(Stream& stream, const Tensor& stats, const Tensor& logits, const int32_t* targets,
                         int64_t first_column) {
  shapes::check_cross_entropy_stats(stats, logits, targets, first_column);
  const int64_t rows = logits.dim(0), cols = logits.dim(1);
  if (rows == 0) return;
  const int32_t* const targets_there = upload(stream, targets, rows);
  with_float("cross_entropy_stats", logits, [&]<class T>() {
    with_rows<T>(rows, cols, are_aligned(logits), kAnyNumber, [&]<int N, bool kIsWarp>(const RowsShape& shape) {
      launch(stream, stats_kernel<T, N, kIsWarp>, shape.launch, device_data<float>(stats), device_data<T>(logits),
             targets_there, first_column, rows, cols);
    });
  });
}

void cross_entropy_combine(Stream& stream, const Tensor& losses, const Tensor& lse, const Tensor& stats,
                           const int32_t* targets) {
  shapes::check_cross_entropy_combine(losses, lse, stats);
  const int64_t tokens = stats.dim(1);
  if (tokens == 0) return;
  launch(stream, combine_kernel, over_elements(tokens), device_data<float>(losses), device_data<float>(lse),
         device_data<float>(stats), upload(stream, targets, tokens), stats.dim(0), tokens);
}

void cross_entropy_gradient(Stream& stream, const Tensor& logits, const Tensor& lse, const Tensor& factors,
                            const int32_t* targets, int64_t first_column, float dlogits_scale) {
  shapes::check_cross_entropy_gradient(logits, lse, factors, targets, first_column);
  const int64_t rows = logits.dim(0), cols = logits.dim(1);
  if (logits.numel() == 0) return;
  const int32_t* const targets_there = upload(stream, targets, rows);
  with_float("cross_entropy_gradient", logits, [&]<class T>() {
    with_rows<T>(rows, cols, are_aligned(logits), kAnyNumber, [&]<int N, bool kIsWarp>(const RowsShape& shape) {
      launch(stream, gradient_kernel<T, N, kIsWarp>, shape.launch, device_data<T>(logits), device_data<float>(lse),
             device_data<float>(factors), targets_there, first_column, rows, cols, dlogits_scale);
    });
  });
}

}  // namespace weft::cuda
