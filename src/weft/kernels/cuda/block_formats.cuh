// The blocks of a BlockMatrix in a kernel's hands: eight neighbours at once, as integers with a scale or as floats.
#pragma once
#include "weft/kernels/cuda/device_table.cuh"
#include "weft/kernels/cuda/float8.cuh"
#include "weft/kernels/nf4.h"

namespace weft::cuda {

inline constexpr int kChunk = 8;  // elements that a thread takes at once; they share a scale in every format

// Element i of a chunk is scale * (byte i of the codes, which are signed) - minus.
struct Codes {
  unsigned low, high;
  float scale, minus;
};

struct Words {
  unsigned low, high;
};

// Little-endian, at any alignment: aligned words around them are read, of which each holds a byte that is asked for.
__device__ __forceinline__ Words load_words(const uint8_t* p) {
  const unsigned offset = unsigned(reinterpret_cast<uintptr_t>(p) & 3);
  const unsigned* const words = reinterpret_cast<const unsigned*>(p - offset);
  const unsigned a = __ldg(words), b = __ldg(words + 1), c = __ldg(words + (offset ? 2 : 1));
  return {__funnelshift_r(a, b, 8 * offset), __funnelshift_r(b, c, 8 * offset)};
}
__device__ __forceinline__ unsigned load_word(const uint8_t* p) {
  const unsigned offset = unsigned(reinterpret_cast<uintptr_t>(p) & 3);
  const unsigned* const words = reinterpret_cast<const unsigned*>(p - offset);
  return __funnelshift_r(__ldg(words), __ldg(words + (offset ? 1 : 0)), 8 * offset);
}
__device__ __forceinline__ float load_float(const uint8_t* p) { return __uint_as_float(load_word(p)); }
__device__ __forceinline__ float load_half(const uint8_t* p) {
  return __half2float(__ushort_as_half((unsigned short)(__ldg(p) | unsigned(__ldg(p + 1)) << 8)));
}

// Halves of bytes, of eight bytes.
__device__ __forceinline__ Words nibbles(const Words& bytes, int is_high) {
  return {bytes.low >> (4 * is_high) & 0x0f0f0f0fu, bytes.high >> (4 * is_high) & 0x0f0f0f0fu};
}
// Of `e` and its neighbours where every 32 elements are in 16 bytes, the first 16 in their low halves.
__device__ __forceinline__ Words nibbles_of_32(const uint8_t* q, int e) {
  return nibbles(load_words(q + e / 32 * 16 + e % 16), e % 32 / 16);
}

__device__ __forceinline__ unsigned byte_of(const Words& words, int i) {
  return (i < 4 ? words.low : words.high) >> (8 * (i % 4)) & 0xff;
}

__device__ const DeviceTable<float, 16> kNf4Table = device_table(nf4::kTable);

// Each format: elements and bytes of a block, what its chunks are, and chunk [e, e + 8) of the block at p. The fields
// are those of tensor/ggml_block_layout.h and kernels/block_layout.h.
struct Q8_0Format {
  static constexpr int kElements = 32, kBytes = 34;
  static constexpr bool kIsFloat = false, kHasMinus = false;
  __device__ static Codes codes(const uint8_t* p, int e) {
    const Words q = load_words(p + 2 + e);
    return {q.low, q.high, load_half(p), 0};
  }
};

struct Q4_0Format {
  static constexpr int kElements = 32, kBytes = 18;
  static constexpr bool kIsFloat = false, kHasMinus = true;
  __device__ static Codes codes(const uint8_t* p, int e) {
    const Words q = nibbles_of_32(p + 2, e);
    const float d = load_half(p);
    return {q.low, q.high, d, 8 * d};
  }
};

// Codes `q` of sub-block j of a block at p that begins with two halves and ggml::ScalesAndMinima.
__device__ __forceinline__ Codes codes_of_sub_block(const uint8_t* p, int j, const Words& q) {
  const uint8_t* const s = p + 4;
  const int first = __ldg(s + j), second = __ldg(s + (j < 4 ? j + 4 : j - 4));
  const int both = j < 4 ? 0 : __ldg(s + j + 4);
  const int scale = j < 4 ? first & 63 : (both & 15) | second >> 6 << 4;
  const int minimum = j < 4 ? second & 63 : both >> 4 | first >> 6 << 4;
  return {q.low, q.high, load_half(p) * float(scale), load_half(p + 2) * float(minimum)};
}

struct Q4_KFormat {
  static constexpr int kElements = 256, kBytes = 144;
  static constexpr bool kIsFloat = false, kHasMinus = true;
  __device__ static Codes codes(const uint8_t* p, int e) {
    return codes_of_sub_block(p, e / 32, nibbles(load_words(p + 16 + e / 64 * 32 + e % 32), e / 32 % 2));
  }
};

struct Q5_KFormat {
  static constexpr int kElements = 256, kBytes = 176;
  static constexpr bool kIsFloat = false, kHasMinus = true;
  __device__ static Codes codes(const uint8_t* p, int e) {
    const int j = e / 32;
    const Words low = nibbles(load_words(p + 48 + e / 64 * 32 + e % 32), j % 2), high = load_words(p + 16 + e % 32);
    return codes_of_sub_block(
        p, j, {low.low | (high.low >> j & 0x01010101u) << 4, low.high | (high.high >> j & 0x01010101u) << 4});
  }
};

struct Q6_KFormat {
  static constexpr int kElements = 256, kBytes = 210;
  static constexpr bool kIsFloat = false, kHasMinus = true;
  __device__ static Codes codes(const uint8_t* p, int e) {
    const Words low = nibbles(load_words(p + e / 128 * 64 + e % 64), e % 128 / 64);
    const Words high = load_words(p + 128 + e / 128 * 32 + e % 32);
    const int shift = e % 128 / 32 * 2;
    const float scale = load_half(p + 208) * float(int8_t(__ldg(p + 192 + e / 16)));
    return {low.low | (high.low >> shift & 0x03030303u) << 4, low.high | (high.high >> shift & 0x03030303u) << 4,
            scale, 32 * scale};
  }
};

// Of a table of 16 bytes in four words those that four bytes number.
__device__ __forceinline__ unsigned entries_of(unsigned numbers, unsigned a, unsigned b, unsigned c, unsigned d) {
  const unsigned picks =
      (numbers & 7) | (numbers >> 4 & 0x70) | (numbers >> 8 & 0x700) | (numbers >> 12 & 0x7000);  // of eight bytes
  const unsigned upper = (numbers >> 3 & 0x01010101u) * 0xff;
  return (__byte_perm(a, b, picks) & ~upper) | (__byte_perm(c, d, picks) & upper);
}
// Twice the numbers of E2M1 (tensor/float4.h), and ggml::kIq4Table.
__device__ __forceinline__ unsigned twice_e2m1(unsigned codes) {
  return entries_of(codes, 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu);
}
__device__ __forceinline__ unsigned iq4_entries(unsigned codes) {
  return entries_of(codes, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
}

struct Mxfp4Format {
  static constexpr int kElements = 32, kBytes = 17;
  static constexpr bool kIsFloat = false, kHasMinus = false;
  __device__ static Codes codes(const uint8_t* p, int e) {
    const Words q = nibbles_of_32(p + 1, e);
    return {twice_e2m1(q.low), twice_e2m1(q.high), __uint_as_float(unsigned(__ldg(p)) << 23) / 2, 0};
  }
};

struct Iq4NlFormat {
  static constexpr int kElements = 32, kBytes = 18;
  static constexpr bool kIsFloat = false, kHasMinus = false;
  __device__ static Codes codes(const uint8_t* p, int e) {
    const Words q = nibbles_of_32(p + 2, e);
    return {iq4_entries(q.low), iq4_entries(q.high), load_half(p), 0};
  }
};

struct Iq4XsFormat {
  static constexpr int kElements = 256, kBytes = 136;
  static constexpr bool kIsFloat = false, kHasMinus = false;
  __device__ static Codes codes(const uint8_t* p, int e) {
    const int j = e / 32;
    const Words q = nibbles_of_32(p + 8, e);
    const int low = __ldg(p + 4 + j / 2) >> (j % 2 * 4) & 15, high = __ldg(p + 2 + j / 4) >> (j % 4 * 2) & 3;
    return {iq4_entries(q.low), iq4_entries(q.high), load_half(p) * float((low | high << 4) - 32), 0};
  }
};

struct Int8Format {
  static constexpr int kElements = 128, kBytes = 132;
  static constexpr bool kIsFloat = false, kHasMinus = false;
  __device__ static Codes codes(const uint8_t* p, int e) {
    const Words q = load_words(p + 4 + e);
    return {q.low, q.high, load_float(p), 0};
  }
};

template <int kSize>
struct W4Format {
  static constexpr int kElements = kSize, kBytes = 4 + kSize / 2;
  static constexpr bool kIsFloat = false, kHasMinus = true;
  __device__ static Codes codes(const uint8_t* p, int e) {
    const Words q = nibbles_of_32(p + 4, e);
    const float scale = load_half(p);
    return {q.low, q.high, scale, scale * float(__ldg(p + 2))};
  }
};

struct Fp8Format {
  static constexpr int kElements = 128, kBytes = 132;
  static constexpr bool kIsFloat = true;
  __device__ static void floats(const uint8_t* p, int e, float (&x)[kChunk]) {
    const Words q = load_words(p + 4 + e);
    const float scale = load_float(p);
    for (int i = 0; i < kChunk; ++i) x[i] = scale * float_of_e4m3(byte_of(q, i));
  }
};

struct Nf4Format {
  static constexpr int kElements = 64, kBytes = 36;
  static constexpr bool kIsFloat = true;
  __device__ static void floats(const uint8_t* p, int e, float (&x)[kChunk]) {
    const Words q = nibbles_of_32(p + 4, e);
    const float scale = load_float(p);
    for (int i = 0; i < kChunk; ++i) x[i] = scale * __ldg(kNf4Table.values + byte_of(q, i));
  }
};

// A chunk of row `row` of a matrix, whose members are those that quantised_product.cuh names.
// Elements before the first column and behind the last are none of this weight's, whatever they hold.
template <class Matrix>
__device__ __forceinline__ void floats_of_columns(const Matrix& b, int64_t row, unsigned chunk, float (&w)[kChunk]) {
  if constexpr (Matrix::kIsFloat) {
    b.floats(row, chunk, w);
    const int64_t first = int64_t(chunk) * kChunk - b.skip;
    if (first < 0 || first + kChunk > b.cols)
      for (int i = 0; i < kChunk; ++i)
        if (first + i < 0 || first + i >= b.cols) w[i] = 0;
  } else {
    const Codes c = b.codes(row, chunk);
    const Words words = {c.low, c.high};
    for (int i = 0; i < kChunk; ++i) w[i] = fmaf(c.scale, float(int8_t(byte_of(words, i))), -c.minus);
  }
}

}  // namespace weft::cuda
