// Keys or values of a sequence in the blocks of a pool, as tiles of attention read them: numbers, or codes of 8 bits.
#pragma once
#include "weft/kernels/cuda/attention_tile.cuh"
#include "weft/kernels/cuda/float8.cuh"

namespace weft::cuda {

// A code's number without its scale: exact in every 16-bit float.
template <RowCodes kCodes>
__device__ __forceinline__ float number_of(unsigned code) {
  if (kCodes == RowCodes::int8) return float(int(int8_t(code)));
  return float_of_e4m3(code);
}

// Exponents of infinities and of what is no number, in each element of a word.
template <class N>
__device__ __forceinline__ unsigned exponent_mask();
template <>
__device__ __forceinline__ unsigned exponent_mask<float>() {
  return 0x7f800000u;
}
template <>
__device__ __forceinline__ unsigned exponent_mask<__nv_bfloat16>() {
  return 0x7f807f80u;
}
template <>
__device__ __forceinline__ unsigned exponent_mask<__half>() {
  return 0x7c007c00u;
}
template <class N>
__device__ __forceinline__ bool is_finite(unsigned word) {
  const unsigned mask = exponent_mask<N>(), found = word & mask;
  if (sizeof(N) == 4) return found != mask;
  return (found & 0xffffu) != (mask & 0xffffu) && found >> 16 != mask >> 16;
}
template <class N>
__device__ __forceinline__ bool is_finite(uint4 words) {
  return is_finite<N>(words.x) && is_finite<N>(words.y) && is_finite<N>(words.z) && is_finite<N>(words.w);
}

// Rows of one key/value head. Of values, is_guarded: what is no finite number stands as 0 and its key is remembered,
// since 0 times it would reach lanes that do not see the key.
template <class P, RowCodes kCodes, bool is_guarded>
struct PagedRows {
  static constexpr bool kIsCoded = kCodes != RowCodes::none, kIsGuarded = is_guarded;
  const P* pool;  // of the head, in row 0
  const int32_t* blocks;
  int block_tokens;
  int64_t row_stride;
  int dim, width;   // elements of a head that are read, and all, with its scale
  bool is_aligned;  // 16 bytes of numbers, or 4 of codes, can be read at once
  int* bad;         // [kTileKeys] in shared memory: the last key at this place of a tile that was not finite

  __device__ __forceinline__ const P* operator[](int64_t key) const {
    const unsigned block = unsigned(key) / unsigned(block_tokens), inside = unsigned(key) % unsigned(block_tokens);
    return pool + (int64_t(blocks[block]) * block_tokens + inside) * row_stride;
  }
  __device__ __forceinline__ PagedRows of(const int32_t* table, int head, int* bad_keys) const {
    return {pool + int64_t(head) * width, table, block_tokens, row_stride, dim, width, is_aligned, bad_keys};
  }
  __device__ __forceinline__ float scale(int64_t key) const {
    const P* const at = (*this)[key] + width - 4;
    unsigned bits = 0;
    for (int i = 0; i < 4; ++i) bits |= unsigned(at[i]) << (8 * i);
    return __uint_as_float(bits);
  }
  __device__ __forceinline__ bool is_bad(int64_t key) const { return bad[key % kTileKeys] == key; }

  template <int kPer, class N>
  __device__ __forceinline__ void load_unit(N* to, int64_t key, int col, int left) const {
    const P* const from = (*this)[key] + col;
    if constexpr (kIsCoded) {
      load_codes<kPer>(to, from, left, key);
    } else {
      if constexpr (std::is_same_v<typename NativeOf<P>::Type, N>) {
        const uint4 bits = is_aligned ? load16(from) : make_uint4(0, 0, 0, 0);
        if (is_aligned && (!is_guarded || is_finite<N>(bits))) return store16(to, bits);
      }
      for (int e = 0; e < kPer; ++e) put_number(to + e, e < left ? float(load(from + e)) : 0.0f, key);
    }
  }

 private:
  template <class N>
  __device__ __forceinline__ void put_number(N* to, float x, int64_t key) const {
    if (is_guarded && (__float_as_uint(x) & 0x7f800000u) == 0x7f800000u) x = 0, bad[key % kTileKeys] = int(key);
    put(to, x);
  }
  template <int kPer, class N>
  __device__ __forceinline__ void load_codes(N* to, const P* from, int left, int64_t key) const {
#pragma unroll
    for (int e = 0; e < kPer; e += 4) {
      unsigned codes = 0;
      if (is_aligned && e < left) codes = *reinterpret_cast<const unsigned*>(from + e);
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const unsigned code = is_aligned ? codes >> (8 * b) & 0xff : e + b < left ? unsigned(from[e + b]) : 0u;
        put_number(to + e + b, number_of<kCodes>(code), key);
      }
    }
  }
};

// Of head 0 of a pool, without a list of blocks yet: see PagedRows::of.
template <class P, RowCodes kCodes, bool is_guarded>
PagedRows<P, kCodes, is_guarded> paged_rows(const Tensor& pool, int64_t dim, int64_t block_tokens) {
  const P* const base = device_data<P>(pool);
  const bool is_coded = kCodes != RowCodes::none;
  const int64_t width = pool.dim(3), vector = is_coded ? 4 : kVectorBytes;
  return {.pool = base,
          .blocks = nullptr,
          .block_tokens = int(block_tokens),
          .row_stride = pool.dim(2) * width,
          .dim = int(dim),
          .width = int(width),
          .is_aligned = are_rows_aligned(base, dim, vector) && are_rows_aligned(base, width, vector),
          .bad = nullptr};
}

}  // namespace weft::cuda
