// Joins attention over some keys to attention over others, in one pass bound by memory.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/rows.cuh"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

template <class T, int N, bool kIsWarp>
__global__ void merge_kernel(float* acc, float* acc_lse, const T* part, const float* part_lse, int64_t tokens,
                             int64_t heads, int64_t dim) {
  const Worker<kIsWarp> worker;
  const int64_t row = worker.index;  // of token and head
  if (row >= tokens * heads) return;
  const int64_t at = row % heads * tokens + row / heads;
  const float here = acc_lse[at], there = part_lse[at];
  if (there == -INFINITY) return;
  const float high = fmaxf(here, there), all = high + log1pf(expf(fminf(here, there) - high));
  const float keep = expf(here - all), take = expf(there - all);
  for (int64_t c = worker.rank * N; c < dim; c += worker.size * N) {
    float x[N], y[N];
    load_n(y, acc + row * dim + c);
    load_n(x, part + row * dim + c);
    for (int i = 0; i < N; ++i) y[i] = keep * y[i] + take * x[i];
    store_n(acc + row * dim + c, y);
  }
  worker.sync();  // all have read it
  if (worker.rank == 0) acc_lse[at] = all;
}

}  // namespace

void attention_merge(Stream& stream, const Tensor& acc, const Tensor& acc_lse, const Tensor& part,
                     const Tensor& part_lse) {
  shapes::check_attention_merge(acc, acc_lse, part, part_lse);
  const int64_t tokens = part.dim(0), heads = part.dim(1), dim = part.dim(2);
  with_float("attention_merge", part, [&]<class T>() {
    with_rows<T, float>(
        tokens * heads, dim, are_aligned(acc, part), kAnyNumber, [&]<int N, bool kIsWarp>(const RowsShape& shape) {
          launch(stream, merge_kernel<T, N, kIsWarp>, shape.launch, device_data<float>(acc),
                 device_data<float>(acc_lse), device_data<T>(part), device_data<float>(part_lse), tokens, heads, dim);
        });
  });
}

}  // namespace weft::cuda
