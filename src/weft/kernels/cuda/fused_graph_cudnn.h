// fused_graph: attention as a graph of operations that cuDNN knows as one kernel.
#pragma once
#include "weft/kernels/cuda/cudnn_graph.h"
#include "weft/kernels/cuda/fused_plan.h"

namespace weft::cuda {

// The ids of what a plan reads and writes.
enum FusedId : int64_t {
  kQ = 1,
  kK,
  kV,
  kY,
  kLse,
  kDy,
  kDq,
  kDk,
  kDv,
  kRowSums,
  kQBegin,
  kKBegin,
  kVBegin,
  kYBegin,
  kLseBegin,
  kNumQueries,
  kNumKeys,
  kScale,
  kOne,
  kPadding,
  kUnseen,
  kWindow,
  kPassed,
};

CudnnGraph fused_graph(const FusedKey& key);

}  // namespace weft::cuda
