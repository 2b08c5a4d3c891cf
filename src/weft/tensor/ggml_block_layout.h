// The blocks of ggml's quantised types as they lie in a file: each decodes itself and is encoded from floats.
// Source of the layouts: ggml's public headers. d is a scale and m a minimum in half precision, q are the codes.
#pragma once
#include <array>
#include <cstdint>

namespace weft::ggml {

// Two codes of 4 bits in a byte: element i is in the low half of byte i, element i + 16 in its high half.
using Nibbles = std::array<uint8_t, 16>;
// The fifth bits: bit i of the little-endian 32 belongs to element i.
using FifthBits = std::array<uint8_t, 4>;

struct Q4_0 {  // x = d (q - 8)
  static constexpr int kSize = 32;
  uint16_t d;
  Nibbles q;
  void decode(float* x) const;
  static Q4_0 encode(const float* x);
};

struct Q4_1 {  // x = d q + m
  static constexpr int kSize = 32;
  uint16_t d, m;
  Nibbles q;
  void decode(float* x) const;
  static Q4_1 encode(const float* x);
};

struct Q5_0 {  // x = d (q - 16)
  static constexpr int kSize = 32;
  uint16_t d;
  FifthBits high;
  Nibbles low;
  void decode(float* x) const;
  static Q5_0 encode(const float* x);
};

struct Q5_1 {  // x = d q + m
  static constexpr int kSize = 32;
  uint16_t d, m;
  FifthBits high;
  Nibbles low;
  void decode(float* x) const;
  static Q5_1 encode(const float* x);
};

struct Q8_0 {  // x = d q
  static constexpr int kSize = 32;
  uint16_t d;
  std::array<int8_t, 32> q;
  void decode(float* x) const;
  static Q8_0 encode(const float* x);
};

struct Mxfp4 {  // x = s q, with q in E2M1 and s in E8M0 (float4.h)
  static constexpr int kSize = 32;
  uint8_t scale;
  Nibbles q;
  void decode(float* x) const;
  static Mxfp4 encode(const float* x);
};

// What codes of 4 bits stand for in the types below. Source: ggml's public tables.
inline constexpr std::array<int8_t, 16> kIq4Table = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};

struct Iq4Nl {  // x = d table[q]
  static constexpr int kSize = 32;
  uint16_t d;
  Nibbles q;
  void decode(float* x) const;
  static Iq4Nl encode(const float* x);
};

struct Iq4Xs {  // 8 sub-blocks of 32: x = d (s - 32) table[q], with s of 6 bits
  static constexpr int kSize = 256;
  uint16_t d;
  uint16_t high;               // bits 2 j and up: the upper two of scale j
  std::array<uint8_t, 4> low;  // the lower four of scale 2 j in the lower half of byte j, of 2 j + 1 in the upper one
  std::array<Nibbles, 8> q;
  int scale(int j) const { return ((low[j / 2] >> j % 2 * 4 & 15) | (high >> 2 * j & 3) << 4) - 32; }
  void decode(float* x) const;
  static Iq4Xs encode(const float* x);
};

// The K family: super-blocks of 256 elements, of sub-blocks that have small integers as scales (s) and minima (m),
// all of which share a d, and a dmin.

struct Q2_K {  // 16 sub-blocks of 16: x = d s q - dmin m, with s and m of 4 bits
  static constexpr int kSize = 256;
  std::array<uint8_t, 16> scales;  // s low, m high
  // Byte 32 h + i has, two bits each, the elements 128 h + i, + 32, + 64 and + 96.
  std::array<uint8_t, 64> q;
  uint16_t d, dmin;
  void decode(float* x) const;
  static Q2_K encode(const float* x);
};

struct Q3_K {  // 16 sub-blocks of 16: x = d (s - 32) (q - 4), with s of 6 bits
  static constexpr int kSize = 256;
  std::array<uint8_t, 32> high;  // bit 4 h + j of byte i is the third bit of element 128 h + 32 j + i
  std::array<uint8_t, 64> low;   // as in Q2_K
  // Low 4 bits of s: scale j in the low half of byte j for j < 8, else in the high half of byte j - 8. High 2 bits:
  // bits 2 (j / 4) and up of byte 8 + j % 4.
  std::array<uint8_t, 12> scales;
  uint16_t d;
  void decode(float* x) const;
  static Q3_K encode(const float* x);
};

// Eight scales and eight minima of 6 bits. For j < 4 the scale is in the low bits of byte j and the minimum in those
// of byte j + 4. For j >= 4 their low 4 bits are in byte j + 4, scale low and minimum high, and their high 2 bits
// above what bytes j - 4 (scale) and j (minimum) have already.
struct ScalesAndMinima {
  std::array<uint8_t, 12> bytes;
  int scale(int j) const { return j < 4 ? bytes[j] & 63 : (bytes[j + 4] & 15) | (bytes[j - 4] >> 6) << 4; }
  int minimum(int j) const { return j < 4 ? bytes[j + 4] & 63 : bytes[j + 4] >> 4 | (bytes[j] >> 6) << 4; }
  void set(int j, int scale, int minimum);  // from j = 0 upwards, on zeroed bytes
};

struct Q4_K {  // 8 sub-blocks of 32: x = d s q - dmin m
  static constexpr int kSize = 256;
  uint16_t d, dmin;
  ScalesAndMinima scales;
  std::array<uint8_t, 128> q;  // byte 32 g + i: element 64 g + i low, 64 g + 32 + i high
  void decode(float* x) const;
  static Q4_K encode(const float* x);
};

struct Q5_K {  // 8 sub-blocks of 32: x = d s q - dmin m
  static constexpr int kSize = 256;
  uint16_t d, dmin;
  ScalesAndMinima scales;
  std::array<uint8_t, 32> high;  // bit j of byte i: the fifth bit of element 32 j + i
  std::array<uint8_t, 128> low;  // as in Q4_K
  void decode(float* x) const;
  static Q5_K encode(const float* x);
};

struct Q6_K {  // 16 sub-blocks of 16: x = d s (q - 32), with s of 8 bits
  static constexpr int kSize = 256;
  std::array<uint8_t, 128> low;  // byte 64 h + i: element 128 h + i low, 128 h + 64 + i high
  std::array<uint8_t, 64> high;  // byte 32 h + i has, two bits each, elements 128 h + i, + 32, + 64 and + 96
  std::array<int8_t, 16> scales;
  uint16_t d;
  void decode(float* x) const;
  static Q6_K encode(const float* x);
};

static_assert(sizeof(Q4_0) == 18 && sizeof(Q4_1) == 20 && sizeof(Q5_0) == 22 && sizeof(Q5_1) == 24);
static_assert(sizeof(Q8_0) == 34 && sizeof(Mxfp4) == 17 && sizeof(Q2_K) == 84 && sizeof(Q3_K) == 110 &&
              sizeof(Q4_K) == 144);
static_assert(sizeof(Q5_K) == 176 && sizeof(Q6_K) == 210 && sizeof(Iq4Nl) == 18 && sizeof(Iq4Xs) == 136);

}  // namespace weft::ggml
