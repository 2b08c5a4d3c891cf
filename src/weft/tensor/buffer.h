// Buffer: a reference-counted range of bytes that goes back to whoever made it.
#pragma once
#include <atomic>
#include <cstddef>
#include <utility>

#include "weft/tensor/device.h"

namespace weft {

struct Buffer;

// What a buffer is returned to when its last tensor is gone.
class BufferOwner {
 public:
  virtual void release(Buffer& buffer) noexcept = 0;

 protected:
  ~BufferOwner() = default;
};

struct Buffer {
  std::byte* data = nullptr;  // null on the meta device
  size_t bytes = 0;
  Device device = Device::cpu;
  BufferOwner* owner = nullptr;
  std::atomic<int> references{0};
};

// Counts one reference to a buffer.
class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(Buffer* buffer) : buffer_(buffer) { retain(); }
  BufferRef(const BufferRef& other) : buffer_(other.buffer_) { retain(); }
  BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferRef() {
    if (buffer_ && buffer_->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
      buffer_->owner->release(*buffer_);
  }

  Buffer* operator->() const { return buffer_; }
  explicit operator bool() const { return buffer_; }

 private:
  void retain() {
    if (buffer_) buffer_->references.fetch_add(1, std::memory_order_relaxed);
  }
  Buffer* buffer_ = nullptr;
};

}  // namespace weft
