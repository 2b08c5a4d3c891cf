// The blocks of weights that are not ggml's: each decodes itself, and is encoded from floats where weft rounds to it.
#pragma once
#include <array>
#include <cstdint>

namespace weft::blocks {

// Code i of two to a byte: of every 32, the first 16 are in the low halves of 16 bytes.
template <size_t kBytes>
int code_at(const std::array<uint8_t, kBytes>& q, int i) {
  const int both = q[size_t(i / 32 * 16 + i % 16)];
  return i % 32 < 16 ? both & 15 : both >> 4;
}

struct Fp8 {  // x = scale q, with q in E4M3
  static constexpr int kSize = 128;
  float scale;
  std::array<uint8_t, kSize> q;
  void decode(float* x) const;
  static Fp8 encode(const float* x, float largest);  // of the row's magnitudes, which share a scale
};

struct Int8 {  // x = scale q; all blocks of a row have the same scale
  static constexpr int kSize = 128;
  float scale;
  std::array<int8_t, kSize> q;
  void decode(float* x) const;
  static Int8 encode(const float* x, float largest);
};

// x = scale (q - zero), scale as a half. Of every 32 elements, element i is in the low half of byte i, element i + 16
// in its high half.
template <int kElements>
struct W4 {
  static constexpr int kSize = kElements;
  uint16_t scale;
  uint8_t zero;  // 0 to 16
  uint8_t unused;
  std::array<uint8_t, kSize / 2> q;
  void set(int i, int code) {
    q[size_t(i / 32 * 16 + i % 16)] |= uint8_t(i % 32 < 16 ? code : code << 4);
  }  // of zeros
  void decode(float* x) const;
};

// x = scale kTable[q] of nf4.h, two codes in a byte as in W4; the largest magnitude is the scale. Source: Dettmers et
// al., 2023.
struct Nf4 {
  static constexpr int kSize = 64;
  float scale;
  std::array<uint8_t, kSize / 2> q;
  void decode(float* x) const;
  static Nf4 encode(const float* x);
};

static_assert(sizeof(Fp8) == 132 && sizeof(Int8) == 132 && sizeof(W4<32>) == 20 && sizeof(W4<128>) == 68);
static_assert(sizeof(Nf4) == 36);

}  // namespace weft::blocks
