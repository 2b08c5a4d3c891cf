// gemm: the dense products under `matmul`, row-major; cuBLASLt does them, and where no GPU is the emulator's loops.
#pragma once
#include <cstdint>

#include "weft/kernels/cuda/alignment.h"
#include "weft/kernels/kernels.h"

namespace weft::cuda {

// What elements of 8 bits, in E4M3, are multiplied with.
enum class CodeScales : uint8_t {
  none,    // a and b are no codes
  one,     // 1
  blocks,  // a scale to every 128 neighbours along k, of a and of b
};

// What becomes of a product before it is stored; gelu is the one by tanh.
enum class GemmActivation : uint8_t { none, gelu, gelu_backward };

// y[m, n] = op(a)[m, k] op(b)[k, n], plus y with `accumulate`, plus a bias to each column: summed in f32, rounded
// once. m, n and k are at least 1; not both a and b are transposed. Pointers are of the device, aligned to their
// elements.
struct Gemm {
  DType type = DType::f32;    // of a and b: f32, bf16 or f16
  DType y_type = DType::f32;  // f32, or that of a and b
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;  // a lies as [k, m], b as [n, k]
  bool accumulate = false;
  bool rounds_f32 = false;  // f32 operands may lose bits to TF32's 11
  void* y = nullptr;        // rows of y_stride elements, of which n are written
  int64_t y_stride = 0;
  const void* a = nullptr;
  int64_t a_stride = 0;  // from one of its rows, as it lies, to the next; 0: they follow each other
  const void* b = nullptr;
  const void* bias = nullptr;  // [n] of y_type, aligned as adds_bias says; null: none
  // So many products of operands that follow each other, of all three; more than one have no bias, activation, codes.
  int64_t batch = 1;

  // With gelu y is that of the product, which goes to `pre`; with gelu_backward y is the product times the slope of
  // gelu at `pre`. [m, n] of y_type, which is that of a and b, with rows y_stride apart; both at multiples of 16
  // bytes, and n and y_stride multiples of 8. Nothing is accumulated.
  GemmActivation activation = GemmActivation::none;
  void* pre = nullptr;

  // Codes, of which `type` is not asked: b lies as [n, k], a as [m, k], there is no bias and no `accumulate`.
  // Pointers are at multiples of 16 bytes; k, n and y_stride are multiples of 16; of `blocks` m is one of 4 and k of
  // 128.
  CodeScales scales = CodeScales::none;
  const float* a_scales = nullptr;  // [k / 128, m]: of blocks
  const float* b_scales = nullptr;  // [k / 128, n]
};

// Whether a gemm into y adds the bias itself.
inline bool adds_bias(DType y_type, DType bias_type, const void* bias) {
  return bias_type == y_type && is_aligned(bias);
}

void gemm(Stream& stream, const Gemm& product);

// Whether this device and this version of the library have a way; all products that are not of codes and have no
// activation have one.
bool can_gemm(const Gemm& product);

}  // namespace weft::cuda
