// Blocks of FP8, INT8, 4 bits with zeros and NF4: decoding, and rounding of floats to them.
#include "weft/kernels/block_layout.h"

#include <algorithm>
#include <cmath>

#include "weft/kernels/nf4.h"
#include "weft/tensor/dtype.h"
#include "weft/tensor/float8.h"

namespace weft::blocks {
namespace {

// 0 where the largest is too small to divide by.
float inverse_of(float scale) { return scale >= 0x1p-100f ? 1 / scale : 0; }

}  // namespace

void Fp8::decode(float* x) const {
  for (size_t i = 0; i < q.size(); ++i) x[i] = scale * float(Float8E4M3::from_bits(q[i]));
}

Fp8 Fp8::encode(const float* x, float largest) {
  Fp8 block{.scale = largest / Float8E4M3::kLargest, .q = {}};
  const float inverse = inverse_of(block.scale);
  for (size_t i = 0; i < block.q.size(); ++i) block.q[i] = Float8E4M3::from(x[i] * inverse).bits;
  return block;
}

void Int8::decode(float* x) const {
  for (size_t i = 0; i < q.size(); ++i) x[i] = scale * float(q[i]);
}

Int8 Int8::encode(const float* x, float largest) {
  Int8 block{.scale = largest / 127, .q = {}};
  const float inverse = inverse_of(block.scale);
  for (size_t i = 0; i < block.q.size(); ++i) {
    const float value = std::nearbyint(x[i] * inverse);
    block.q[i] = std::isnan(value) ? int8_t(0) : int8_t(std::clamp(value, -127.0f, 127.0f));
  }
  return block;
}

template <int kElements>
void W4<kElements>::decode(float* x) const {
  const float d = Float16::from_bits(scale);
  for (int i = 0; i < kSize; ++i) x[i] = d * float(code_at(q, i) - int(zero));
}
template struct W4<32>;
template struct W4<128>;

void Nf4::decode(float* x) const {
  for (int i = 0; i < kSize; ++i) x[i] = scale * nf4::kTable[size_t(code_at(q, i))];
}

Nf4 Nf4::encode(const float* x) {
  Nf4 block{.scale = 0, .q = {}};
  for (int i = 0; i < kSize; ++i) block.scale = std::max(block.scale, std::abs(x[i]));
  const float inverse = inverse_of(block.scale);
  for (int i = 0; i < kSize; ++i) {
    const float value = x[i] * inverse;
    int code = 0;
    while (code < 15 && value > (nf4::kTable[size_t(code)] + nf4::kTable[size_t(code + 1)]) / 2) ++code;
    block.q[size_t(i / 32 * 16 + i % 16)] |= uint8_t(i % 32 < 16 ? code : code << 4);
  }
  return block;
}

}  // namespace weft::blocks
