// Operands of products in fp8: plain loops, which compilers turn into vectors.
#include <algorithm>
#include <array>

#include "weft/base/ceil_div.h"
#include "weft/kernels/cpu/matmul_kernels.h"
#include "weft/kernels/float8_groups.h"

namespace weft::cpu {
namespace {

using float8_groups::kGroup;
using float8_groups::rounded;
using float8_groups::Scale;
using float8_groups::scale_of;

constexpr int64_t kGridElements = 1 << 14;  // of a task
constexpr int64_t kColumns = 256;           // whose scales stay in L1

uint32_t magnitude(BFloat16 x) { return uint32_t(x.bits & 0x7fff) << 16; }

// Numbers on the grid have no more bits than bf16 has.
BFloat16 cut(float x) {
  BFloat16 y;
  y.bits = uint16_t(std::bit_cast<uint32_t>(x) >> 16);
  return y;
}

void round_row(const BFloat16* x, BFloat16* y, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kGroup) {
    const int64_t end = std::min(begin + kGroup, count);
    uint32_t largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, magnitude(x[i]));
    const Scale s = scale_of(largest);
    for (int64_t i = begin; i < end; ++i) y[i] = cut(rounded(float(x[i]), s));
  }
}

// `rows` of a group, of columns [begin, end).
void round_columns(const BFloat16* x, BFloat16* y, int64_t rows, int64_t stride, int64_t begin, int64_t end) {
  std::array<uint32_t, kColumns> largest{};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = begin; c < end; ++c)
      largest[size_t(c - begin)] = std::max(largest[size_t(c - begin)], magnitude(x[r * stride + c]));
  std::array<Scale, kColumns> scales;
  for (int64_t c = begin; c < end; ++c) scales[size_t(c - begin)] = scale_of(largest[size_t(c - begin)]);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = begin; c < end; ++c)
      y[r * stride + c] = cut(rounded(float(x[r * stride + c]), scales[size_t(c - begin)]));
}

}  // namespace

Tensor on_float8_grid(Stream& stream, const Tensor& x, bool groups_run_down) {
  Tensor y = stream.allocator().empty(DType::bf16, x.shape());
  const int64_t rows = x.dim(0), cols = x.dim(1);
  const BFloat16* const in = x.data<BFloat16>();
  BFloat16* const out = y.data<BFloat16>();
  if (!groups_run_down) {
    stream.team().parallel_for(rows, std::max<int64_t>(1, kGridElements / std::max<int64_t>(cols, 1)),
                               [&](int64_t begin, int64_t end, int) {
                                 for (int64_t r = begin; r < end; ++r) round_row(in + r * cols, out + r * cols, cols);
                               });
    return y;
  }
  const int64_t strips = ceil_div(cols, kColumns);
  stream.team().parallel_for(ceil_div(rows, kGroup) * strips, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t row = i / strips * kGroup, col = i % strips * kColumns;
      round_columns(in + row * cols, out + row * cols, std::min(kGroup, rows - row), cols, col,
                    std::min(col + kColumns, cols));
    }
  });
  return y;
}

}  // namespace weft::cpu
