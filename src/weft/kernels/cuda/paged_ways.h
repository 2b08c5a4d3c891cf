// paged_ways: paged attention by the tiles of attention, which take every case, and in parts on tensor cores, which
// are faster and take the usual one. Which it is depends on the model alone: all rows of a sequence go one way.
#pragma once
#include "weft/kernels/kernels.h"

namespace weft::cuda {

// Arguments are checked already. False, and nothing is done, where it is not for these heads. paged_in_parts.cu
bool paged_attention_in_parts(Stream&, const PagedAttentionArgs&);

}  // namespace weft::cuda
