// Arena: the emulator's device memory, which the host cannot touch.
#pragma once
#include <sys/mman.h>

#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>

#include "weft/base/error.h"

namespace emulated {

// Where device memory lies: nobody but kernels and copies may look at it.
class Arena {
 public:
  static Arena& instance() {
    static Arena arena;
    return arena;
  }

  void* allocate(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t size = (std::max<size_t>(bytes, 1) + kGuard + 255) / 256 * 256;
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const auto [offset, length] = *it;
      if (length < size) continue;
      free_.erase(it);
      if (length > size) free_[offset + size] = length - size;
      live_[offset] = size;
      return base_ + offset;
    }
    return nullptr;
  }
  void release(void* p) {
    if (!p) return;
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(size_t(static_cast<std::byte*>(p) - base_));
    if (it == live_.end()) std::abort();  // freed twice, or never allocated
    auto [offset, length] = *it;
    live_.erase(it);
    auto next = free_.emplace(offset, length).first;
    if (const auto after = std::next(next); after != free_.end() && offset + length == after->first)
      next->second += after->second, free_.erase(after);
    if (next != free_.begin())
      if (const auto before = std::prev(next); before->first + before->second == next->first)
        before->second += next->second, free_.erase(next);
  }

  // Device memory can be touched while one of these lives.
  class Open {
   public:
    explicit Open(Arena& arena) : arena_(arena) { arena_.open(+1); }
    ~Open() { arena_.open(-1); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    Arena& arena_;
  };

 private:
  static constexpr size_t kBytes = size_t(2) << 30, kGuard = 64;

  Arena() {
    base_ =
        static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    weft::check(base_ != MAP_FAILED, "no addresses for emulated device memory");
    madvise(base_, kBytes, MADV_HUGEPAGE);  // fewer pages to open and close
    free_[0] = kBytes;
  }
  void open(int change) {
    const std::lock_guard lock(mutex_);
    const bool was_open = num_open_ > 0;
    num_open_ += change;
    if (was_open != (num_open_ > 0)) mprotect(base_, kBytes, num_open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
  std::mutex mutex_;
  std::byte* base_ = nullptr;
  std::map<size_t, size_t> free_, live_;  // bytes by offset
  int num_open_ = 0;
};

}  // namespace emulated
