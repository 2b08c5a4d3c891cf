// attention_ways: attention by tiles of our own, which take every case, and by cuDNN's fused kernels, which take the
// usual ones of training.
#pragma once
#include <optional>

#include "weft/kernels/cuda/fused_plan.h"

namespace weft::cuda {

// Arguments are checked already. attention.cu, attention_backward.cu
void tiled_attention(Stream&, const AttentionArgs&);
void tiled_attention_backward(Stream&, const AttentionBackwardArgs&);

// False where nothing was done: cuDNN is not there, has no way that is the same in every run, or does not take the
// case. Before a plan is used for the first time, what it makes of noise is compared with what the tiles make of it;
// where they differ, that is said, and the plan is not used.
bool fused_attention(Stream&, const AttentionArgs&);
bool fused_attention_backward(Stream&, const AttentionBackwardArgs&);

// What it takes: sequences that share no rows and leave none out, each with keys of its own; all causal, with as many
// keys as queries, or none; a softmax of scaled scores without caps, biases or dropout.
// Equal lengths that are multiples of 128 stay as they are; others are ragged, with rounded numbers, so that few
// plans serve all steps.
std::optional<FusedKey> fused_key(const AttentionShape&, DType type, int64_t num_queries, int64_t num_keys);

// The same for gradients: of as many sequences and heads at once as a workspace of so many bytes allows, which grows
// with queries times keys. None: not even one key/value head of one sequence fits.
std::optional<FusedKey> fused_backward_key(FusedKey forward, int64_t workspace_bytes);

inline constexpr int64_t kFusedWorkspaceBytes = int64_t(256) << 20;

}  // namespace weft::cuda
