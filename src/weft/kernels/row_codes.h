// RowFormat: how a pool of keys or values holds its rows, as numbers or as codes of 8 bits with a scale to each head.
// Source of the scales: absmax quantisation, Dettmers et al., "LLM.int8()", 2022; of a token's head as in llama.cpp.
#pragma once
#include <cmath>
#include <limits>

#include "weft/tensor/dtype.h"
#include "weft/tensor/float8.h"

namespace weft {

// none: numbers. Else bytes: behind the D codes of a head's vector stands its scale, in 4 bytes of f32, and its
// numbers are codes times scale. A vector is rounded by itself, so writing one touches no other.
enum class RowCodes : uint8_t { none, int8, fp8 };  // fp8: E4M3

// Bytes of codes, or elements where there are none, of a head's vector of `dim` numbers in a pool.
constexpr int64_t row_width(RowCodes codes, int64_t dim) { return codes == RowCodes::none ? dim : dim + 4; }

struct RowFormat {
  DType dtype = DType::f32;  // of the pool: u8 of codes
  RowCodes codes = RowCodes::none;

  static constexpr RowFormat of(RowCodes codes) { return {DType::u8, codes}; }
  // That a head's vector of `dim` numbers takes.
  constexpr int64_t bytes(int64_t dim) const { return row_width(codes, dim) * int64_t(size_of(dtype)); }
  bool operator==(const RowFormat&) const = default;
};

// The code of the largest magnitude.
constexpr float most_of(RowCodes codes) { return codes == RowCodes::int8 ? 127 : Float8E4M3::kLargest; }

// What numbers are divided by, so that the largest magnitude among them becomes `most`.
struct CodeScale {
  float value = 0;    // no number where the largest is infinite or none itself
  float inverse = 0;  // 0: all codes are

  static constexpr float kLeast = 0x1p-100f;  // below it numbers count as zero: the reciprocal might not be finite

  CodeScale(float largest, float most) {
    const bool is_finite = largest <= std::numeric_limits<float>::max();
    if (!is_finite) value = std::numeric_limits<float>::quiet_NaN();
    if (is_finite && largest >= kLeast) value = largest / most, inverse = most / largest;
  }
};

}  // namespace weft
