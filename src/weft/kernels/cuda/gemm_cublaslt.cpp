// gemm by cuBLASLt. Source: NVIDIA, "cuBLAS Library", 13.1, "Using the cuBLASLt API".
#include <cublasLt.h>

#include <array>
#include <memory>

#include "weft/kernels/cuda/algorithm_cache.h"
#include "weft/kernels/cuda/column_major.h"
#include "weft/kernels/cuda/launch.h"
#include "weft/kernels/cuda/per_device.h"

namespace weft::cuda {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t(32) << 20;  // what NVIDIA advises for Hopper
constexpr size_t kMostAlgorithms = 4096;                // prompts have any number of rows

void check_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error("cuBLASLt could not {}: {}", what, cublasLtGetStatusString(status));
}

cudaDataType_t blas_type(DType type) {
  switch (type) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: throw Error("cuBLASLt: products are of f32, bf16 and f16, not of {}", name_of(type));
  }
}

cudaDataType_t operand_type(const Gemm& g) {
  return g.scales == CodeScales::none ? blas_type(g.type) : CUDA_R_8F_E4M3;
}

// How an Error names a product.
std::string words_for(const Gemm& g) {
  return fmt::format("multiply {} [{}, {}]{} by [{}, {}]{} into {} (rows {} apart{}{})",
                     g.scales == CodeScales::none ? name_of(g.type) : "e4m3", g.m, g.k,
                     g.transpose_a ? " transposed" : "", g.k, g.n, g.transpose_b ? " transposed" : "",
                     name_of(g.y_type), g.y_stride, g.accumulate ? ", accumulated" : "", g.bias ? ", with bias" : "");
}

class Layout {
 public:
  Layout(cudaDataType_t type, const ColumnMajorGemm::Matrix& m) {
    check_blas(cublasLtMatrixLayoutInit(&layout_, type, uint64_t(m.rows), uint64_t(m.cols), m.ld),
               "describe a matrix");
  }
  cublasLtMatrixLayout_t get() { return &layout_; }

 private:
  cublasLtMatrixLayoutOpaque_t layout_;
};

// A product as cuBLASLt wants it described.
class Description {
 public:
  Description(const Gemm& g, const ColumnMajorGemm& c)
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

  Layout first, second, y;

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

struct Algorithm {
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace_bytes;
  cublasStatus_t status;  // of the search
  bool is_known;
};

// cuBLASLt on one device, for all threads.
class Blas {
 public:
  Blas() { check_blas(cublasLtCreate(&handle_), "start"); }

  bool knows(const Gemm& g) {
    Description d(g, column_major(g));
    return algorithm(g, d).is_known;
  }

  void multiply(Stream& stream, const Gemm& g) {
    const ColumnMajorGemm c = column_major(g);
    Description d(g, c);
    const Algorithm chosen = algorithm(g, d);
    if (!chosen.is_known)
      throw Error("cuBLASLt knows no way to {}: {}", words_for(g), cublasLtGetStatusString(chosen.status));
    // Of one size whatever the product needs, so that one block serves all.
    const Tensor workspace =
        chosen.workspace_bytes ? stream.allocator().empty(DType::u8, {kWorkspaceBytes}) : Tensor();
    CudaQueue& queue = queue_of(stream);
    const auto issue = [this, g, chosen, scratch = workspace ? workspace.raw() : nullptr](cudaStream_t on) {
      multiply(on, g, chosen, scratch);
    };
    if (!queue.steps().is_in_step()) return issue(queue.stream());
    queue.steps().description().add(this).add(g).add(workspace ? workspace.raw() : nullptr);
    queue.steps().add(issue);
  }

 private:
  void multiply(cudaStream_t on, const Gemm& g, const Algorithm& chosen, void* workspace) {
    const ColumnMajorGemm c = column_major(g);
    Description d(g, c);
    const float alpha = 1, beta = g.accumulate ? 1 : 0;
    const cublasStatus_t status = cublasLtMatmul(handle_, d.product(), &alpha, c.first.data, d.first.get(),
                                                 c.second.data, d.second.get(), &beta, g.y, d.y.get(), g.y, d.y.get(),
                                                 &chosen.algorithm, workspace, chosen.workspace_bytes, on);
    if (status != CUBLAS_STATUS_SUCCESS)
      throw Error("cuBLASLt could not {}: {}", words_for(g), cublasLtGetStatusString(status));
  }

  Algorithm algorithm(const Gemm& g, Description& d) {
    return algorithms_.get(AlgorithmKey(g), [&] { return choose(g, d); });
  }

  // Parts of a sum that were added up by different blocks are joined in f32 and in a fixed order, or not made at all.
  Algorithm choose(const Gemm& g, Description& d) {
    cublasLtMatmulPreferenceOpaque_t preference;
    check_blas(cublasLtMatmulPreferenceInit(&preference), "start a search");
    const auto set = [&]<class T>(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
      check_blas(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
                 "limit a search");
    };
    const auto alignment = [](const void* p) { return uint32_t(alignment_of(p)); };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(kWorkspaceBytes));
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(g.b));  // b comes first
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(g.a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(g.y));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(g.y));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, d.product(), d.first.get(), d.second.get(), d.y.get(), d.y.get(), &preference, 1, &result, &found);
    const cublasStatus_t what = status != CUBLAS_STATUS_SUCCESS ? status : result.state;
    return {result.algo, result.workspaceSize, what, found > 0 && what == CUBLAS_STATUS_SUCCESS};
  }

  cublasLtHandle_t handle_ = nullptr;
  AlgorithmCache<Algorithm> algorithms_{kMostAlgorithms};
};

}  // namespace

void gemm(Stream& stream, const Gemm& product) { of_this_device<Blas>().multiply(stream, product); }

bool can_gemm(const Gemm& product) {
  const bool is_plain = product.scales == CodeScales::none && product.activation == GemmActivation::none;
  return is_plain || of_this_device<Blas>().knows(product);
}

}  // namespace weft::cuda
