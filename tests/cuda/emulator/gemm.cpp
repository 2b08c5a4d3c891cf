// gemm on the CPU, in the place of cuBLASLt: a thread of the emulator to each element.
#include "weft/kernels/cuda/gemm.h"

#include <cstdlib>

#include "weft/kernels/cuda/activation.cuh"
#include "weft/tensor/float8.h"

namespace weft::cuda {
namespace {

template <class T, class Y>
void multiply(Gemm g) {
  const int64_t i = first_element();
  if (i >= g.m * g.n) return;
  const int64_t row = i / g.n, col = i % g.n;
  const T *const a = static_cast<const T*>(g.a), *const b = static_cast<const T*>(g.b);
  const int64_t a_stride = g.a_stride ? g.a_stride : g.transpose_a ? g.m : g.k;
  const int64_t a_row = g.transpose_a ? 1 : a_stride, a_step = g.transpose_a ? a_stride : 1;
  const int64_t b_col = g.transpose_b ? g.k : 1, b_step = g.transpose_b ? 1 : g.n;
  float sum = 0;
  for (int64_t k = 0; k < g.k; ++k) sum += load(a + row * a_row + k * a_step) * load(b + col * b_col + k * b_step);
  Y* const y = static_cast<Y*>(g.y) + row * g.y_stride + col;
  if (g.accumulate) sum += load(y);
  if (g.bias) sum += load(static_cast<const Y*>(g.bias) + col);
  Y* const pre = static_cast<Y*>(g.pre) + row * g.y_stride + col;
  if (g.activation == GemmActivation::gelu) store(pre, sum), sum = activate(Activation::gelu_tanh, sum);
  if (g.activation == GemmActivation::gelu_backward) sum *= activation_slope(Activation::gelu_tanh, load(pre));
  store(y, sum);
}

template <class T>
void multiply_of(Stream& stream, const Gemm& g) {
  const LaunchShape shape{.blocks_x = unsigned(ceil_div(g.m * g.n, 64)), .threads = 64};
  launch(stream, g.y_type == DType::f32 ? multiply<T, float> : multiply<T, T>, shape, g);
}

// Sums of 128 products are scaled before they are added, as Hopper does.
template <class Y>
void multiply_codes(Gemm g) {
  const int64_t i = first_element();
  if (i >= g.m * g.n) return;
  const int64_t row = i / g.n, col = i % g.n;
  const uint8_t *const a = static_cast<const uint8_t*>(g.a) + row * g.k, *const b = static_cast<const uint8_t*>(g.b) +
                                                                                    col * g.k;
  float sum = 0;
  for (int64_t begin = 0; begin < g.k; begin += 128) {
    float part = 0;
    for (int64_t k = begin; k < std::min(begin + 128, g.k); ++k)
      part += float(Float8E4M3::from_bits(a[k])) * float(Float8E4M3::from_bits(b[k]));
    if (g.scales == CodeScales::blocks)
      part *= g.a_scales[begin / 128 * g.m + row] * g.b_scales[begin / 128 * g.n + col];
    sum += part;
  }
  store(static_cast<Y*>(g.y) + row * g.y_stride + col, sum);
}

void gemm_of_codes(Stream& stream, const Gemm& g) {
  const bool has_blocks = g.scales == CodeScales::blocks;
  check(can_gemm(g) && g.transpose_b && !g.transpose_a && !g.bias && !g.accumulate &&
            g.k % (has_blocks ? 128 : 16) == 0 && g.n % 16 == 0 && g.y_stride % 16 == 0 &&
            g.m % (has_blocks ? 4 : 1) == 0 && is_aligned(g.a) && is_aligned(g.b) && is_aligned(g.y) &&
            (!has_blocks || (is_aligned(g.a_scales) && is_aligned(g.b_scales))),
        "cuBLASLt would refuse a product of codes, {} x {} x {}", g.m, g.n, g.k);
  const LaunchShape shape{.blocks_x = unsigned(ceil_div(g.m * g.n, 64)), .threads = 64};
  switch (g.y_type) {
    case DType::bf16: return launch(stream, multiply_codes<BFloat16>, shape, g);
    case DType::f16: return launch(stream, multiply_codes<Float16>, shape, g);
    default: return launch(stream, multiply_codes<float>, shape, g);
  }
}

}  // namespace

bool can_gemm(const Gemm& g) {
  const int capability = compute_capability();
  const char* const asked = std::getenv("WEFT_EMULATED_BLAS_WITHOUT_CODES");
  return g.scales == CodeScales::none ||
         (!asked && (g.scales == CodeScales::one ? capability >= 89 : capability == 90));
}

void gemm(Stream& stream, const Gemm& g) {
  if (g.scales != CodeScales::none) return gemm_of_codes(stream, g);
  check(g.m > 0 && g.n > 0 && g.k > 0 && g.y_stride >= g.n && !(g.transpose_a && g.transpose_b) &&
            (g.y_type == DType::f32 || g.y_type == g.type) && is_aligned(g.a, int64_t(size_of(g.type))) &&
            is_aligned(g.b, int64_t(size_of(g.type))) && is_aligned(g.y, int64_t(size_of(g.y_type))) &&
            is_aligned(g.bias) &&
            (g.activation == GemmActivation::none ||
             (g.pre && is_aligned(g.pre) && is_aligned(g.y) && g.n % 8 == 0 && g.y_stride % 8 == 0 && !g.accumulate &&
              g.y_type == g.type && g.type != DType::f32)),
        "cuBLASLt would refuse a product of {} x {} x {}", g.m, g.n, g.k);
  switch (g.type) {
    case DType::f32: return multiply_of<float>(stream, g);
    case DType::bf16: return multiply_of<BFloat16>(stream, g);
    case DType::f16: return multiply_of<Float16>(stream, g);
    default: throw Error("no product of {}", name_of(g.type));
  }
}

}  // namespace weft::cuda
