// The keys that rows have selected, as bits.
#include "weft/kernels/cuda/cuda.h"
#include "weft/kernels/cuda/follow.cuh"
#include "weft/kernels/cuda/launch.h"
#include "weft/kernels/shape_checks.h"

namespace weft::cuda {
namespace {

constexpr int kMarkThreads = 256;

// A block to each row.
__global__ void __launch_bounds__(kMarkThreads)
    mark_keys_kernel(unsigned* bits, const int32_t* selected, int64_t words, int64_t most) {
  follow();
  unsigned* const row = bits + int64_t(blockIdx.x) * words;
  for (int64_t i = threadIdx.x; i < words; i += kMarkThreads) row[i] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < most; i += kMarkThreads) {
    const int key = selected[int64_t(blockIdx.x) * most + i];
    if (key >= 0 && key / 32 < words) atomicOr(row + key / 32, 1u << (key % 32));
  }
}

}  // namespace

void mark_keys(Stream& stream, const Tensor& bits, const Tensor& selected) {
  shapes::check_mark_keys(bits, selected);
  if (bits.dim(0) == 0) return;
  launch(stream, mark_keys_kernel, LaunchShape{.blocks_x = unsigned(bits.dim(0)), .threads = kMarkThreads},
         reinterpret_cast<unsigned*>(device_data<int32_t>(bits)), device_data<int32_t>(selected), bits.dim(1),
         selected.dim(1));
}

}  // namespace weft::cuda
