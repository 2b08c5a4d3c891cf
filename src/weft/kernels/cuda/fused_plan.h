// FusedPlan: attention over sequences that are alike, by cuDNN's fused kernels; needs no header of cuDNN.
#pragma once
#include <cuda_runtime.h>

#include <memory>

#include "weft/kernels/kernels.h"

namespace weft::cuda {

// What a plan is made for. Sequences that are alike follow each other in q and in k; ragged ones begin anywhere.
struct FusedKey {
  bool is_backward = false;
  bool is_causal = false;  // as many queries as keys, and query i sees the keys up to key i; else all see all
  bool is_ragged = false;
  DType type = DType::bf16;  // or f16
  int32_t sequences = 0;     // with their queries and keys each: the most, where they are ragged
  int32_t queries = 0, keys = 0;
  int32_t heads = 0, kv_heads = 0;          // that are computed, of q and of k and v
  int32_t row_heads = 0, row_kv_heads = 0;  // that a row of the tensors has
  int32_t dim = 0, value_dim = 0;           // of a head of q and k, and of v and y
  int32_t window = 0;                       // causal: a query sees no more than so many keys; 0: all
  int64_t lse_stride = 0;                   // from one head's to the next one's
  auto operator<=>(const FusedKey&) const = default;
};

// Device memory, from the first head that is computed on; what a plan does not need is null.
struct FusedCall {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *y = nullptr, *dy = nullptr;
  const float* lse = nullptr;
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  const int32_t *q_begin = nullptr, *k_begin = nullptr, *v_begin = nullptr, *y_begin = nullptr;
  const int32_t* lse_begin = nullptr;                         // these, ragged: [sequences + 1], in elements
  const int32_t *num_queries = nullptr, *num_keys = nullptr;  // ragged: [sequences]; 0: there is no such sequence
  float* row_sums = nullptr;                                  // backward: [sequences, heads, queries]
  void* workspace = nullptr;                                  // of workspace_bytes()
  float scale = 1;
};

class FusedPlan {
 public:
  virtual ~FusedPlan() = default;
  virtual size_t workspace_bytes() const = 0;
  virtual void queue(cudaStream_t stream, const FusedCall& call) const = 0;
};

// For the calling thread's device; null where cuDNN is missing, too old, or has no way whose results are the same in
// every run. Throws Error where the library fails.
std::shared_ptr<const FusedPlan> make_fused_plan(const FusedKey& key);

// Asked before plans are: false where none would be made.
bool has_fused_plans();

}  // namespace weft::cuda
