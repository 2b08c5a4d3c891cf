// Decoding ggml's blocks. Every product here is exact in fp32 (11 bits of d, at most 7 of a scale, 5 of a code or 7
// and 6), so that a compiler that fuses multiplication and addition gives the same bits.
#include "weft/tensor/dtype.h"
#include "weft/tensor/float4.h"
#include "weft/tensor/ggml_block_layout.h"

namespace weft::ggml {
namespace {

int nibble(const Nibbles& q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }

int five_bits(const Nibbles& low, const FifthBits& high, int i) {
  return nibble(low, i) | (high[i / 8] >> i % 8 & 1) << 4;
}

// Element i of 256, two bits each, as Q2_K has them.
int two_bits(const std::array<uint8_t, 64>& q, int i) { return q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3; }

// Element i of 256, four bits each, as Q4_K has them.
int four_bits(const std::array<uint8_t, 128>& q, int i) {
  const int byte = q[i / 64 * 32 + i % 32];
  return i % 64 < 32 ? byte & 15 : byte >> 4;
}

}  // namespace

void Q4_0::decode(float* x) const {
  const float scale = Float16::from_bits(d);
  for (int i = 0; i < kSize; ++i) x[i] = scale * float(nibble(q, i) - 8);
}

void Q4_1::decode(float* x) const {
  const float scale = Float16::from_bits(d), minimum = Float16::from_bits(m);
  for (int i = 0; i < kSize; ++i) x[i] = scale * float(nibble(q, i)) + minimum;
}

void Q5_0::decode(float* x) const {
  const float scale = Float16::from_bits(d);
  for (int i = 0; i < kSize; ++i) x[i] = scale * float(five_bits(low, high, i) - 16);
}

void Q5_1::decode(float* x) const {
  const float scale = Float16::from_bits(d), minimum = Float16::from_bits(m);
  for (int i = 0; i < kSize; ++i) x[i] = scale * float(five_bits(low, high, i)) + minimum;
}

void Q8_0::decode(float* x) const {
  const float scale = Float16::from_bits(d);
  for (int i = 0; i < kSize; ++i) x[i] = scale * float(q[i]);
}

void Mxfp4::decode(float* x) const {
  const float half = float_of_e8m0(scale) / 2;
  for (size_t i = 0; i < q.size(); ++i) {
    x[i] = half * float(kTwiceE2M1[q[i] & 15]);
    x[i + q.size()] = half * float(kTwiceE2M1[q[i] >> 4]);
  }
}

void Iq4Nl::decode(float* x) const {
  const float scale = Float16::from_bits(d);
  for (int i = 0; i < kSize; ++i) x[i] = scale * float(kIq4Table[size_t(nibble(q, i))]);
}

void Iq4Xs::decode(float* x) const {
  const float all = Float16::from_bits(d);
  for (int i = 0; i < kSize; ++i)
    x[i] = all * float(scale(i / 32)) * float(kIq4Table[size_t(nibble(q[size_t(i / 32)], i % 32))]);
}

void Q2_K::decode(float* x) const {
  const float all = Float16::from_bits(d), all_min = Float16::from_bits(dmin);
  for (int j = 0; j < 16; ++j) {
    const float scale = all * float(scales[j] & 15), minimum = all_min * float(scales[j] >> 4);
    for (int i = 16 * j; i < 16 * j + 16; ++i) x[i] = scale * float(two_bits(q, i)) - minimum;
  }
}

void Q3_K::decode(float* x) const {
  const float all = Float16::from_bits(d);
  for (int j = 0; j < 16; ++j) {
    const int bits = (j < 8 ? scales[j] & 15 : scales[j - 8] >> 4) | (scales[8 + j % 4] >> j / 4 * 2 & 3) << 4;
    const float scale = all * float(bits - 32);
    for (int i = 16 * j; i < 16 * j + 16; ++i) {
      const int third = high[i % 32] >> i / 32 & 1;
      x[i] = scale * float((two_bits(low, i) | third << 2) - 4);
    }
  }
}

void Q4_K::decode(float* x) const {
  const float all = Float16::from_bits(d), all_min = Float16::from_bits(dmin);
  for (int j = 0; j < 8; ++j) {
    const float scale = all * float(scales.scale(j)), minimum = all_min * float(scales.minimum(j));
    for (int i = 32 * j; i < 32 * j + 32; ++i) x[i] = scale * float(four_bits(q, i)) - minimum;
  }
}

void Q5_K::decode(float* x) const {
  const float all = Float16::from_bits(d), all_min = Float16::from_bits(dmin);
  for (int j = 0; j < 8; ++j) {
    const float scale = all * float(scales.scale(j)), minimum = all_min * float(scales.minimum(j));
    for (int i = 32 * j; i < 32 * j + 32; ++i) {
      const int fifth = high[i % 32] >> j & 1;
      x[i] = scale * float(four_bits(low, i) | fifth << 4) - minimum;
    }
  }
}

void Q6_K::decode(float* x) const {
  const float all = Float16::from_bits(d);
  for (int j = 0; j < 16; ++j) {
    const float scale = all * float(scales[j]);
    for (int i = 16 * j; i < 16 * j + 16; ++i) {
      const int byte = low[i / 128 * 64 + i % 64];
      const int four = i % 128 < 64 ? byte & 15 : byte >> 4;
      x[i] = scale * float((four | two_bits(high, i) << 4) - 32);
    }
  }
}

}  // namespace weft::ggml
