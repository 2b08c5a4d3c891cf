// DType: the element types of tensors, with conversions of the 16-bit floats.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

enum class DType : uint8_t { f64, f32, bf16, f16, i64, i32, u16, u8 };

constexpr size_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr bool is_float(DType type) { return type <= DType::f16; }
std::string_view name_of(DType type);  // "f32", "bf16", ...

// Brain float: the upper half of an fp32. Rounds to nearest, ties to even; a NaN stays a NaN.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = uint16_t(is_nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

// IEEE 754 half precision. Rounds to nearest, ties to even; overflows to infinity; subnormals are kept.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float x) : bits(to_bits(x)) {}
  explicit operator float() const { return from_bits(bits); }
  static uint16_t to_bits(float x);
  static float from_bits(uint16_t bits);
};

// The DType of a C++ element type.
template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<double>() {
  return DType::f64;
}
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<BFloat16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<Float16>() {
  return DType::f16;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::i64;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::i32;
}
template <>
constexpr DType dtype_of<uint16_t>() {
  return DType::u16;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::u8;
}

}  // namespace weft
