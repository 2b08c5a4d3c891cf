// BlasDescription: a Gemm in the words of cuBLASLt.
#pragma once
#include <cublasLt.h>

#include "weft/kernels/cuda/column_major.h"

namespace weft::cuda {

inline void check_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error("cuBLASLt could not {}: {}", what, cublasLtGetStatusString(status));
}

inline cudaDataType_t blas_type(DType type) {
  switch (type) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: throw Error("cuBLASLt: products are of f32, bf16 and f16, not of {}", name_of(type));
  }
}

inline cudaDataType_t operand_type(const Gemm& g) {
  return g.scales == CodeScales::none ? blas_type(g.type) : CUDA_R_8F_E4M3;
}

class BlasLayout {
 public:
  BlasLayout(cudaDataType_t type, const ColumnMajorGemm::Matrix& m) {
    check_blas(cublasLtMatrixLayoutInit(&layout_, type, uint64_t(m.rows), uint64_t(m.cols), m.ld),
               "describe a matrix");
    if (m.batch == 1) return;
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(m.batch));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.elements());
  }
  cublasLtMatrixLayout_t get() { return &layout_; }

 private:
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, T value) {
    check_blas(cublasLtMatrixLayoutSetAttribute(&layout_, attribute, &value, sizeof(value)), "describe a matrix");
  }

  cublasLtMatrixLayoutOpaque_t layout_;
};

// A product as cuBLASLt wants it described.
class BlasDescription {
 public:
  BlasDescription(const Gemm& g, const ColumnMajorGemm& c)
      : first(operand_type(g), c.first), second(operand_type(g), c.second), y(blas_type(g.y_type), c.y) {
    const bool is_rounded = g.scales == CodeScales::none && g.rounds_f32 && g.type == DType::f32;
    check_blas(
        cublasLtMatmulDescInit(&product_, is_rounded ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describe a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, c.first.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, c.second.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (g.scales == CodeScales::blocks) {  // without pointers scales are 1
      constexpr int32_t kBlocks = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kBlocks);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kBlocks);
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(g.b_scales));  // b comes first
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(g.a_scales));
    }
    const cublasLtEpilogue_t epilogue = epilogue_of(g);
    if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (g.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
    if (g.activation == GemmActivation::none) return;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g.pre);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.y_stride);
  }
  cublasLtMatmulDesc_t product() { return &product_; }

  BlasLayout first, second, y;

 private:
  static cublasLtEpilogue_t epilogue_of(const Gemm& g) {
    switch (g.activation) {
      case GemmActivation::gelu: return g.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      case GemmActivation::gelu_backward: return CUBLASLT_EPILOGUE_DGELU;
      case GemmActivation::none: break;
    }
    return g.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check_blas(cublasLtMatmulDescSetAttribute(&product_, attribute, &value, sizeof(value)), "describe a product");
  }

  cublasLtMatmulDescOpaque_t product_;
};

}  // namespace weft::cuda
