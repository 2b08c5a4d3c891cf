// Alignment: whether and how wide memory can be read and written in vectors.
#pragma once
#include <algorithm>
#include <cstdint>

namespace weft::cuda {

inline constexpr int64_t kVectorBytes = 16;  // of the widest loads and stores

inline bool is_aligned(const void* p, int64_t bytes = kVectorBytes) {
  return reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0;
}

// Whether all of the tensors, and so all of their vectors, lie at 16-byte addresses; empty tensors do.
template <class... Tensors>
bool are_aligned(const Tensors&... tensors) {
  return ((!tensors || is_aligned(tensors.raw())) && ...);
}

// Whether rows of `width` elements that follow each other from p on all are.
template <class T>
bool are_rows_aligned(const T* p, int64_t width, int64_t bytes = kVectorBytes) {
  return is_aligned(p, bytes) && width * int64_t(sizeof(T)) % bytes == 0;
}

// Up to that of the widest loads, which is all that an algorithm may ask for.
inline int64_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return std::min<int64_t>(int64_t(address & (~address + 1)), kVectorBytes);
}

}  // namespace weft::cuda
