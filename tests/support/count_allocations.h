// Counts every operator new of the executable, but under Clang's ThreadSanitizer, which has its own and cannot be
// linked with another. To be included in one of its source files only.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace weft {

inline std::atomic<int64_t> num_allocations{0};

}  // namespace weft

#ifdef __has_feature
#if __has_feature(thread_sanitizer)
#define WEFT_ALLOCATIONS_ARE_OTHERS
#endif
#endif
#ifndef WEFT_ALLOCATIONS_ARE_OTHERS
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++weft::num_allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* data = operator new(bytes, std::nothrow)) return data;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, size_t) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, const std::nothrow_t&) noexcept { std::free(data); }
#endif
