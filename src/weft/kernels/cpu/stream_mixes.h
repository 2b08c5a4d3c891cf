// The matrices that mix residual streams (stream_mix.h), of as many tokens at once as vectors have lanes: each matrix
// is a long chain of operations on few numbers. A token's bits do not depend on which others are beside it.
#pragma once
#include "weft/kernels/streams_args.h"

namespace weft::cpu {

inline constexpr int kMixesAtOnce = 16;

// mixes[tokens, streams^2]: logits, of which they are made in place.
void make_mixes(float* mixes, int64_t tokens, int streams, const StreamRule& rule);

// gradients: of the matrices of logits, made those of logits; rows of both are `stride` apart.
void make_mixes_backward(float* gradients, const float* logits, int64_t stride, int64_t tokens, int streams,
                         const StreamRule& rule);

}  // namespace weft::cpu
