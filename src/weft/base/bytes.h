// Bytes: sizes that came from a file are added and multiplied without wrapping, and ranges of it are cut in one
// place.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace weft {

using Bytes = std::span<const std::byte>;

inline Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
inline std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Empty when the result does not fit.
constexpr std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  if (a > std::numeric_limits<uint64_t>::max() - b) return {};
  return a + b;
}
constexpr std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  if (a != 0 && b > std::numeric_limits<uint64_t>::max() / a) return {};
  return a * b;
}

// The `size` bytes from `offset`, or nothing when any of them lies outside. Never wraps.
constexpr std::optional<Bytes> subrange(Bytes bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return {};
  return bytes.subspan(size_t(offset), size_t(size));
}

// Little-endian integers, at any alignment; weft's targets are little-endian.
template <class T>
requires std::is_arithmetic_v<T> T load_le(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
requires std::is_arithmetic_v<T>
void store_le(std::byte* at, T value) { std::memcpy(at, &value, sizeof value); }

}  // namespace weft
