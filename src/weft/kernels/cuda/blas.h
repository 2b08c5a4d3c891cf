// Blas: cuBLASLt on one device, for all threads, and which of its algorithms a kind of product gets.
#pragma once
#include <cublasLt.h>

#include <memory>

#include "weft/kernels/cuda/algorithm_cache.h"
#include "weft/kernels/cuda/algorithm_choice.h"

namespace weft::cuda {

class Blas {
 public:
  explicit Blas(TrialTerms terms = {});

  bool knows(const Gemm& product);
  void multiply(Stream& stream, const Gemm& product);

 private:
  static constexpr int64_t kWorkspaceBytes = int64_t(32) << 20;  // what NVIDIA advises for Hopper
  static constexpr size_t kMostAlgorithms = 4096;                // prompts have any number of rows
  static constexpr int kMostTried = 8;
  static constexpr int64_t kMostTrialBytes = int64_t(1) << 30;

  struct Algorithm {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    cublasStatus_t status;  // of the search
    bool is_known;
  };
  using Choice = AlgorithmChoice<Algorithm>;

  std::shared_ptr<Choice> choice_of(const Gemm& product);
  bool is_worth_a_trial(const Gemm& product) const;
  // Up to `most`, the library's first guess first; one that is not known where there is none.
  std::vector<Algorithm> search(const Gemm& product, int most);
  Algorithm best_alike(Stream& stream, const Gemm& product, const Algorithm& first);
  cublasStatus_t queue(cudaStream_t on, const Gemm& product, const Algorithm& chosen, void* workspace);

  TrialTerms terms_;
  cublasLtHandle_t handle_ = nullptr;
  AlgorithmCache<std::shared_ptr<Choice>> choices_{kMostAlgorithms};
};

}  // namespace weft::cuda
