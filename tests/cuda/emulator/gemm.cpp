// gemm on the CPU, in the place of cuBLASLt: a thread of the emulator to each element.
#include "weft/kernels/cuda/gemm.h"

#include "weft/kernels/cuda/values.cuh"

namespace weft::cuda {
namespace {

template <class T, class Y>
void multiply(Gemm g) {
  const int64_t i = first_element();
  if (i >= g.m * g.n) return;
  const int64_t row = i / g.n, col = i % g.n;
  const T *const a = static_cast<const T*>(g.a), *const b = static_cast<const T*>(g.b);
  const int64_t a_row = g.transpose_a ? 1 : g.k, a_step = g.transpose_a ? g.m : 1;
  const int64_t b_col = g.transpose_b ? g.k : 1, b_step = g.transpose_b ? 1 : g.n;
  float sum = 0;
  for (int64_t k = 0; k < g.k; ++k) sum += load(a + row * a_row + k * a_step) * load(b + col * b_col + k * b_step);
  Y* const y = static_cast<Y*>(g.y) + row * g.y_stride + col;
  if (g.accumulate) sum += load(y);
  if (g.bias) sum += load(static_cast<const Y*>(g.bias) + col);
  store(y, sum);
}

template <class T>
void multiply_of(Stream& stream, const Gemm& g) {
  const LaunchShape shape{.blocks_x = unsigned(ceil_div(g.m * g.n, 64)), .threads = 64};
  launch(stream, g.y_type == DType::f32 ? multiply<T, float> : multiply<T, T>, shape, g);
}

}  // namespace

void gemm(Stream& stream, const Gemm& g) {
  check(g.m > 0 && g.n > 0 && g.k > 0 && g.y_stride >= g.n && !(g.transpose_a && g.transpose_b) &&
            (g.y_type == DType::f32 || g.y_type == g.type) && is_aligned(g.a, int64_t(size_of(g.type))) &&
            is_aligned(g.b, int64_t(size_of(g.type))) && is_aligned(g.y, int64_t(size_of(g.y_type))) &&
            is_aligned(g.bias),
        "cuBLASLt would refuse a product of {} x {} x {}", g.m, g.n, g.k);
  switch (g.type) {
    case DType::f32: return multiply_of<float>(stream, g);
    case DType::bf16: return multiply_of<BFloat16>(stream, g);
    case DType::f16: return multiply_of<Float16>(stream, g);
    default: throw Error("no product of {}", name_of(g.type));
  }
}

}  // namespace weft::cuda
