// ColumnMajorGemm: a row-major product as BLAS sees it, whose matrices are column-major.
#pragma once
#include "weft/kernels/cuda/gemm.h"

namespace weft::cuda {

// A row-major matrix is the transposed column-major one in the same memory, so BLAS computes
// y^T[n, m] = op(b)^T[n, k] op(a)^T[k, m]: b comes first, and op(b)^T is b as it lies where b is not transposed.
// A bias to each column of y is one to each row of y^T, which is what cuBLASLt adds.
struct ColumnMajorGemm {
  struct Matrix {
    const void* data = nullptr;
    int64_t rows = 0, cols = 0, ld = 0;  // as it lies: columns of `rows` elements, `ld` apart
    bool is_transposed = false;          // before it is multiplied
    int64_t batch = 1;                   // so many that follow each other

    int64_t elements() const { return cols * ld; }
  };
  Matrix first, second;
  Matrix y;
  int64_t m = 0, n = 0, k = 0;  // y[m, n] = op(first)[m, k] op(second)[k, n]
};

inline ColumnMajorGemm column_major(const Gemm& g) {
  // Memory that is row-major [rows, cols].
  const auto as_it_lies = [&](const void* data, int64_t rows, int64_t cols, bool is_transposed, int64_t stride = 0) {
    return ColumnMajorGemm::Matrix{data, cols, rows, stride ? stride : cols, is_transposed, g.batch};
  };
  return {.first = g.transpose_b ? as_it_lies(g.b, g.n, g.k, true) : as_it_lies(g.b, g.k, g.n, false),
          .second = g.transpose_a ? as_it_lies(g.a, g.k, g.m, true, g.a_stride)
                                  : as_it_lies(g.a, g.m, g.k, false, g.a_stride),
          .y = {g.y, g.n, g.m, g.y_stride, false, g.batch},
          .m = g.n,
          .n = g.m,
          .k = g.k};
}

}  // namespace weft::cuda
