// Blas: its searches and its trials. Source: NVIDIA, "cuBLAS Library", 13.1, "Using the cuBLASLt API".
#include "weft/kernels/cuda/blas.h"

#include <cstring>

#include "weft/kernels/cuda/blas_description.h"
#include "weft/kernels/cuda/gemm_trial.h"
#include "weft/kernels/cuda/launch.h"
#include "weft/kernels/cuda/per_device.h"
#include "weft/tensor/cuda/cuda_device.h"

namespace weft::cuda {
namespace {

// How an Error names a product.
std::string words_for(const Gemm& g) {
  return fmt::format("multiply {}{} [{}, {}]{} by [{}, {}]{} into {} (rows {} apart{}{})",
                     g.batch > 1 ? fmt::format("{} times ", g.batch) : "",
                     g.scales == CodeScales::none ? name_of(g.type) : "e4m3", g.m, g.k,
                     g.transpose_a ? " transposed" : "", g.k, g.n, g.transpose_b ? " transposed" : "",
                     name_of(g.y_type), g.y_stride, g.accumulate ? ", accumulated" : "", g.bias ? ", with bias" : "");
}

}  // namespace

Blas::Blas(TrialTerms terms) : terms_(terms) { check_blas(cublasLtCreate(&handle_), "start"); }

bool Blas::knows(const Gemm& g) { return choice_of(g)->now().is_known; }

void Blas::multiply(Stream& stream, const Gemm& g) {
  const std::shared_ptr<Choice> choice = choice_of(g);
  const auto better_than = [&](const Algorithm& first) { return best_alike(stream, g, first); };
  const Algorithm chosen = is_worth_a_trial(g) ? choice->use(terms_.uses, better_than) : choice->now();
  if (!chosen.is_known)
    throw Error("cuBLASLt knows no way to {}: {}", words_for(g), cublasLtGetStatusString(chosen.status));
  // Of one size whatever the product needs, so that one block serves all.
  const Tensor workspace = chosen.workspace_bytes ? stream.allocator().empty(DType::u8, {kWorkspaceBytes}) : Tensor();
  CudaQueue& to = queue_of(stream);
  const auto issue = [this, g, chosen, scratch = workspace ? workspace.raw() : nullptr](cudaStream_t on) {
    const cublasStatus_t status = queue(on, g, chosen, scratch);
    if (status != CUBLAS_STATUS_SUCCESS)
      throw Error("cuBLASLt could not {}: {}", words_for(g), cublasLtGetStatusString(status));
  };
  if (!to.steps().is_in_step()) return issue(to.stream());
  to.steps().description().add(this).add(g).add(chosen.algorithm).add(workspace ? workspace.raw() : nullptr);
  to.steps().add(issue);
}

cublasStatus_t Blas::queue(cudaStream_t on, const Gemm& g, const Algorithm& chosen, void* workspace) {
  const ColumnMajorGemm c = column_major(g);
  BlasDescription d(g, c);
  const float alpha = 1, beta = g.accumulate ? 1 : 0;
  return cublasLtMatmul(handle_, d.product(), &alpha, c.first.data, d.first.get(), c.second.data, d.second.get(),
                        &beta, g.y, d.y.get(), g.y, d.y.get(), &chosen.algorithm, workspace, chosen.workspace_bytes,
                        on);
}

std::shared_ptr<Blas::Choice> Blas::choice_of(const Gemm& g) {
  return choices_.get(AlgorithmKey(g), [&] { return std::make_shared<Choice>(search(g, 1).front()); });
}

// Parts of a sum that were added up by different blocks are joined in f32 and in a fixed order, or not made at all.
std::vector<Blas::Algorithm> Blas::search(const Gemm& g, int most) {
  BlasDescription d(g, column_major(g));
  cublasLtMatmulPreferenceOpaque_t preference;
  check_blas(cublasLtMatmulPreferenceInit(&preference), "start a search");
  const auto set = [&]<class T>(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)), "limit a search");
  };
  const auto alignment = [](const void* p) { return uint32_t(alignment_of(p)); };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(kWorkspaceBytes));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(g.b));  // b comes first
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(g.a));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(g.y));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(g.y));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_, d.product(), d.first.get(), d.second.get(), d.y.get(), d.y.get(),
                                     &preference, most, results.data(), &found);
  std::vector<Algorithm> ways;
  for (int i = 0; i < std::max(found, 1); ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[size_t(i)];
    const cublasStatus_t what = status != CUBLAS_STATUS_SUCCESS ? status : result.state;
    ways.push_back({result.algo, result.workspaceSize, what, found > 0 && what == CUBLAS_STATUS_SUCCESS});
  }
  return ways;
}

bool Blas::is_worth_a_trial(const Gemm& g) const {
  return g.scales == CodeScales::none && g.batch == 1 &&
         g.m * g.n >= std::max(terms_.least_products / g.k, terms_.least_results) &&
         trial_bytes(g) <= kMostTrialBytes;
}

Blas::Algorithm Blas::best_alike(Stream& stream, const Gemm& g, const Algorithm& first) try {
  std::vector<Algorithm> ways{first};
  for (const Algorithm& way : search(g, kMostTried))
    if (way.is_known && std::memcmp(&way.algorithm, &first.algorithm, sizeof(first.algorithm)) != 0)
      ways.push_back(way);
  if (ways.size() == 1) return first;

  GemmTrial trial(stream, g);
  const std::unique_ptr<DeviceTimer> timer = make_cuda_timer(stream.queue());
  const Tensor workspace = trial.memory().empty(DType::u8, {kWorkspaceBytes});
  const auto run = [&](size_t way) {
    auto* const on = static_cast<cudaStream_t>(stream.queue().handle());
    return queue(on, trial.product(), ways[way], workspace.raw()) == CUBLAS_STATUS_SUCCESS;
  };
  const auto makes = [&](size_t way) { return trial.restart(), run(way); };
  if (!makes(0)) return first;
  trial.keep();
  const auto seconds = [&](size_t way) {
    timer->start();
    bool has_run = run(way);  // the device is busy with this while the host queues what is timed
    timer->mark();
    has_run = run(way) && has_run;
    timer->mark();
    const std::vector<int64_t> ns = timer->stop();
    return has_run ? double(ns[1] - ns[0]) * 1e-9 : std::numeric_limits<double>::infinity();
  };
  return ways[fastest_alike(ways.size(), seconds, [&](size_t way) { return makes(way) && trial.is_as_kept(); })];
} catch (const Error&) {  // as where the memory to try them is not there
  return first;
}

void gemm(Stream& stream, const Gemm& product) { of_this_device<Blas>().multiply(stream, product); }

bool can_gemm(const Gemm& product) {
  const bool is_plain = product.scales == CodeScales::none && product.activation == GemmActivation::none;
  return is_plain || of_this_device<Blas>().knows(product);
}

}  // namespace weft::cuda
