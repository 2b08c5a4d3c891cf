// Decoding of a BlockMatrix: its rows as floats, for what does not multiply with them as they lie.
#pragma once
#include "weft/kernels/block_matrix.h"

namespace weft {

// Elements [0, cols) of a row.
void decode_row(const BlockMatrix& matrix, int64_t row, float* out);

}  // namespace weft
