// Emulated cuBLASLt: a thread of the emulator to each element of a product. What the library is documented to refuse
// is refused.
#include <cublasLt.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "weft/kernels/cuda/activation.cuh"
#include "weft/kernels/cuda/alignment.h"
#include "weft/tensor/float8.h"

namespace {

using weft::BFloat16, weft::Float16, weft::cuda::is_aligned;

constexpr int kNumAlgorithms = 3;
std::array<std::atomic<int64_t>, kNumAlgorithms> counts;

// Column-major, as the library sees it; element (i, l) of a lies at i * a_row + l * a_step.
struct Product {
  int64_t m, n, k, batch;
  const void *a, *b;
  int64_t a_row, a_step, b_col, b_step;
  int64_t a_batch, b_batch, d_batch;  // from one of a batch to the next
  float alpha, beta;
  void* d;
  int64_t ld;
  cublasLtEpilogue_t epilogue;
  const void* bias;
  void* aux;
  int64_t aux_ld;
  const float *a_scales, *b_scales;  // [k / 128, m] and [k / 128, n]; null: 1
  int halves;                        // that sums are made of
};

template <class D>
__global__ void finish(const Product p, int64_t row, int64_t col, float sum, int64_t which = 0) {
  D* const d = static_cast<D*>(p.d) + which * p.d_batch + row + col * p.ld;
  sum *= p.alpha;
  if (p.beta != 0) sum += p.beta * weft::cuda::load(d);
  if (p.bias) sum += weft::cuda::load(static_cast<const D*>(p.bias) + row);
  D* const aux = static_cast<D*>(p.aux) + row + col * p.aux_ld;
  constexpr auto kGelu = weft::Activation::gelu_tanh;
  if (p.epilogue == CUBLASLT_EPILOGUE_GELU_AUX || p.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
    weft::cuda::store(aux, sum), sum = weft::cuda::activate(kGelu, sum);
  if (p.epilogue == CUBLASLT_EPILOGUE_DGELU) sum *= weft::cuda::activation_slope(kGelu, weft::cuda::load(aux));
  weft::cuda::store(d, sum);
}

template <class T, class D>
__global__ void multiply(const Product p) {
  const int64_t i = weft::cuda::first_element(), row = i % p.m, col = i / p.m % p.n, which = i / p.m / p.n;
  if (which >= p.batch) return;
  const T* const a = static_cast<const T*>(p.a) + which * p.a_batch + row * p.a_row;
  const T* const b = static_cast<const T*>(p.b) + which * p.b_batch + col * p.b_col;
  float sum = 0;
  for (int half = 0; half < p.halves; ++half) {
    float part = 0;
    for (int64_t l = p.k * half / p.halves; l < p.k * (half + 1) / p.halves; ++l)
      part += weft::cuda::load(a + l * p.a_step) * weft::cuda::load(b + l * p.b_step);
    sum += p.halves > 1 ? std::bit_cast<float>(std::bit_cast<uint32_t>(part) & 0xfffff000u) : part;
  }
  finish<D>(p, row, col, sum, which);
}

// Sums of 128 products are scaled before they are added, as Hopper does.
template <class D>
__global__ void multiply_codes(const Product p) {
  const int64_t i = weft::cuda::first_element(), row = i % p.m, col = i / p.m;
  if (col >= p.n) return;
  const uint8_t *const a = static_cast<const uint8_t*>(p.a) + row * p.a_row, *const b =
                                                                                 static_cast<const uint8_t*>(p.b) +
                                                                                 col * p.b_col;
  float sum = 0;
  for (int64_t begin = 0; begin < p.k; begin += 128) {
    float part = 0;
    for (int64_t l = begin; l < std::min(begin + 128, p.k); ++l)
      part += float(weft::Float8E4M3::from_bits(a[l])) * float(weft::Float8E4M3::from_bits(b[l]));
    if (p.a_scales) part *= p.a_scales[begin / 128 * p.m + row] * p.b_scales[begin / 128 * p.n + col];
    sum += part;
  }
  finish<D>(p, row, col, sum);
}

bool is_told(const char* name, std::string_view value) {
  const char* const told = std::getenv(name);
  return told && (value.empty() || told == value);
}

template <class T>
cublasStatus_t take(T& to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool is_code(cudaDataType_t type) { return type == CUDA_R_8F_E4M3; }
uint32_t size_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : is_code(type) ? 1 : 2; }

// What is wanted of a product, apart from where it lies.
struct Shapes {
  const cublasLtMatmulDescOpaque_t& p;
  const cublasLtMatrixLayoutOpaque_t &a, &b, &d;

  bool has_scales() const { return p.a_scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F; }
  bool has_aux() const { return p.epilogue >= CUBLASLT_EPILOGUE_GELU_AUX; }
  uint64_t m() const { return p.transa == CUBLAS_OP_T ? a.cols : a.rows; }
  uint64_t n() const { return p.transb == CUBLAS_OP_T ? b.rows : b.cols; }
  uint64_t k() const { return p.transa == CUBLAS_OP_T ? a.rows : a.cols; }
  bool are_consistent() const {
    const auto is_layout = [](const cublasLtMatrixLayoutOpaque_t& x) {
      return x.rows > 0 && x.cols > 0 && x.ld >= int64_t(x.rows);
    };
    return is_layout(a) && is_layout(b) && is_layout(d) && k() == (p.transb == CUBLAS_OP_T ? b.cols : b.rows) &&
           d.rows == m() && d.cols == n() && a.type == b.type && p.a_scale_mode == p.b_scale_mode &&
           a.batch == d.batch && b.batch == d.batch && (d.batch == 1 || is_plain());
  }
  bool are_supported() const {
    if (is_code(a.type)) return are_codes_supported();
    if (d.type != CUDA_R_32F && d.type != a.type) return false;
    if (has_scales() || (p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F)) return false;
    return !has_aux() || (d.type == a.type && d.type != CUDA_R_32F && d.rows % 8 == 0 && d.ld % 8 == 0 &&
                          p.aux_ld % 8 == 0 && p.aux_ld >= int64_t(d.rows));
  }

 private:
  bool is_plain() const { return !is_code(a.type) && p.epilogue == CUBLASLT_EPILOGUE_DEFAULT; }
  bool are_codes_supported() const {
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    const int capability = 10 * major + minor;
    if (has_scales() ? capability != 90 : capability < 89) return false;
    return !is_told("WEFT_EMULATED_BLAS_WITHOUT_CODES", "") && p.epilogue == CUBLASLT_EPILOGUE_DEFAULT &&
           p.transa == CUBLAS_OP_T && p.transb == CUBLAS_OP_N && k() % (has_scales() ? 128 : 16) == 0 &&
           m() % 16 == 0 && d.ld % 16 == 0 && (!has_scales() || n() % 4 == 0);
  }
};

// Whether pointers lie as they must, of which a search knows no more than how far they are aligned.
bool are_aligned_for(const Shapes& s, const void* a, const void* b, const void* d) {
  if (is_code(s.a.type))
    return is_aligned(a) && is_aligned(b) && is_aligned(d) &&
           (!s.has_scales() ||
            (s.p.a_scales && s.p.b_scales && is_aligned(s.p.a_scales) && is_aligned(s.p.b_scales)));
  if (!is_aligned(a, size_of(s.a.type)) || !is_aligned(b, size_of(s.b.type)) || !is_aligned(d, size_of(s.d.type)))
    return false;
  return is_aligned(s.p.bias) && (!s.has_aux() || (s.p.aux && is_aligned(s.p.aux) && is_aligned(d)));
}

using Kernel = void (*)(Product);
Kernel kernel_of(cudaDataType_t type, cudaDataType_t d) {
  switch (type) {
    case CUDA_R_32F: return multiply<float, float>;
    case CUDA_R_16BF: return d == CUDA_R_32F ? multiply<BFloat16, float> : multiply<BFloat16, BFloat16>;
    case CUDA_R_16F: return d == CUDA_R_32F ? multiply<Float16, float> : multiply<Float16, Float16>;
    case CUDA_R_8F_E4M3: break;
  }
  return d == CUDA_R_32F    ? multiply_codes<float>
         : d == CUDA_R_16BF ? multiply_codes<BFloat16>
                            : multiply_codes<Float16>;
}

}  // namespace

int64_t emulated::num_products(int algorithm) { return counts.at(size_t(algorithm)); }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
                                                 : "CUBLAS_STATUS_EXECUTION_FAILED";
}
struct EmulatedBlas {};
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return *handle = new EmulatedBlas, CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType_t type, uint64_t rows,
                                        uint64_t cols, int64_t ld) {
  *layout = {type, rows, cols, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? take(layout->batch, value, bytes)
                                                         : take(layout->batch_offset, value, bytes);
}
cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t product, cublasComputeType_t compute,
                                      cudaDataType_t type) {
  *product = {};
  product->compute = compute, product->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  return type == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t p, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(p->transa, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(p->transb, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(p->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(p->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return take(p->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return take(p->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: return take(p->a_scale_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: return take(p->b_scale_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return take(p->a_scales, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return take(p->b_scales, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
  *preference = {.most_workspace_bytes = 0,
                 .reduction_schemes = ~0u,
                 .alignment_a = 256,
                 .alignment_b = 256,
                 .alignment_c = 256,
                 .alignment_d = 256};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(p->most_workspace_bytes, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(p->reduction_schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return take(p->alignment_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return take(p->alignment_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return take(p->alignment_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return take(p->alignment_d, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

// The algorithm of halves wants the second one's results in a workspace, and joins them in f32.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  const Shapes s{*product, *a, *b, *d};
  if (!s.are_consistent()) return CUBLAS_STATUS_INVALID_VALUE;
  const bool are_aligned = preference->alignment_a >= size_of(a->type) &&
                           preference->alignment_b >= size_of(b->type) &&
                           preference->alignment_c >= size_of(d->type) && preference->alignment_d >= size_of(d->type);
  if (!are_aligned || !s.are_supported()) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (int i = 0; i < std::min(most, is_code(a->type) ? 1 : kNumAlgorithms); ++i) {
    const size_t workspace = i == 2 ? s.m() * s.n() * uint64_t(d->batch) * sizeof(float) : 0;
    if (workspace > preference->most_workspace_bytes) continue;
    if (workspace && !(preference->reduction_schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) continue;
    results[(*found)++] = {.algo = {{uint64_t(i)}}, .workspaceSize = workspace, .state = CUBLAS_STATUS_SUCCESS};
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  const Shapes s{*product, *a_layout, *b_layout, *d_layout};
  const uint64_t number = algorithm->data[0];
  if (!s.are_consistent() || !s.are_supported() || c != d || number >= kNumAlgorithms ||
      !are_aligned_for(s, a, b, d) ||
      (number == 2 && (!workspace || workspace_bytes < s.m() * s.n() * uint64_t(d_layout->batch) * sizeof(float))))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (number == 1 && is_told("WEFT_EMULATED_BLAS", "broken")) return CUBLAS_STATUS_EXECUTION_FAILED;
  const bool is_a_turned = product->transa == CUBLAS_OP_T, is_b_turned = product->transb == CUBLAS_OP_T;
  Product p{.m = int64_t(s.m()),
            .n = int64_t(s.n()),
            .k = int64_t(s.k()),
            .batch = d_layout->batch,
            .a = a,
            .b = b,
            .a_row = is_a_turned ? a_layout->ld : 1,
            .a_step = is_a_turned ? 1 : a_layout->ld,
            .b_col = is_b_turned ? 1 : b_layout->ld,
            .b_step = is_b_turned ? b_layout->ld : 1,
            .a_batch = a_layout->batch_offset,
            .b_batch = b_layout->batch_offset,
            .d_batch = d_layout->batch_offset,
            .alpha = *static_cast<const float*>(alpha),
            .beta = *static_cast<const float*>(beta),
            .d = d,
            .ld = d_layout->ld,
            .epilogue = product->epilogue,
            .bias = product->bias,
            .aux = product->aux,
            .aux_ld = product->aux_ld,
            .a_scales = s.has_scales() ? static_cast<const float*>(product->a_scales) : nullptr,
            .b_scales = s.has_scales() ? static_cast<const float*>(product->b_scales) : nullptr,
            .halves = number == 2 ? 2 : 1};
  cudaLaunchConfig_t config{};
  constexpr int64_t kThreads = 64;
  config.gridDim = dim3(unsigned((p.m * p.n * p.batch + kThreads - 1) / kThreads)),
  config.blockDim = dim3(unsigned(kThreads));
  config.stream = stream;
  ++counts[number];
  if (is_told("WEFT_EMULATED_BLAS", "slow"))
    emulated::queue(stream, [number] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2 * (kNumAlgorithms - int(number))));
    });
  return cudaLaunchKernelEx(&config, kernel_of(a_layout->type, d_layout->type), p) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}
