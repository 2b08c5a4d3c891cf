// Allocator: size classes, free lists and accounting.
#include "weft/tensor/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace weft {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t(2) << 20;

// Eight sizes per power of two, at least 256 bytes.
size_t round_up_to_class(size_t bytes) {
  constexpr size_t kSmallest = 256;
  if (bytes <= kSmallest) return kSmallest;
  const size_t step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

std::byte* system_allocate(size_t bytes) {
  const bool is_large = bytes >= kHugePage;
  void* data = std::aligned_alloc(is_large ? kHugePage : kAlignment, (bytes + kHugePage - 1) / kHugePage * kHugePage *
                                                                             size_t(is_large) +
                                                                         bytes * size_t(!is_large));
  if (data && is_large) madvise(data, bytes, MADV_HUGEPAGE);  // a refusal costs speed only
  return static_cast<std::byte*>(data);
}

}  // namespace

Allocator::Allocator(Device device, int64_t limit_bytes) : device_(device), limit_bytes_(limit_bytes) {}

Allocator::~Allocator() {
  for (const auto& buffer : buffers_) free_block(*buffer);
}

void Allocator::free_block(Buffer& buffer) noexcept {
  std::free(buffer.data);
  buffer.data = nullptr;
}

BufferRef Allocator::allocate(size_t bytes) {
  const size_t rounded = round_up_to_class(bytes);
  const std::lock_guard lock(mutex_);
  auto& free_list = cached_[rounded];
  Buffer* buffer = nullptr;
  if (!free_list.empty()) {
    buffer = free_list.back();
    free_list.pop_back();
  } else {
    if (stats_.live_bytes + int64_t(rounded) > limit_bytes_)
      throw Error("out of memory: {} bytes were asked for, {} are in use and the limit is {}; use a smaller "
                  "micro_batch, recomputation, or more ranks",
                  bytes, stats_.live_bytes, limit_bytes_);
    buffers_.push_back(std::make_unique<Buffer>());
    buffer = buffers_.back().get();
    buffer->bytes = rounded;
    buffer->device = device_;
    buffer->owner = this;
    if (device_ == Device::cpu) {
      buffer->data = system_allocate(rounded);
      if (!buffer->data) {
        buffers_.pop_back();
        throw Error("out of memory: the system refused {} bytes while {} are in use", bytes, stats_.live_bytes);
      }
    }
    // Room to take the block back without allocating, in release().
    size_t blocks_of_size = 0;
    for (const auto& b : buffers_) blocks_of_size += b->bytes == rounded;
    free_list.reserve(blocks_of_size);
    stats_.reserved_bytes += int64_t(rounded);
    ++stats_.system_calls;
  }
  stats_.live_bytes += int64_t(rounded);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  return BufferRef(buffer);
}

void Allocator::release(Buffer& buffer) noexcept {
  const std::lock_guard lock(mutex_);
  stats_.live_bytes -= int64_t(buffer.bytes);
  cached_.find(buffer.bytes)->second.push_back(&buffer);
}

Tensor Allocator::empty(DType dtype, Shape shape) {
  return {allocate(size_t(shape.numel()) * size_of(dtype)), dtype, shape};
}

Tensor Allocator::zeros(DType dtype, Shape shape) {
  Tensor t = empty(dtype, shape);
  if (device_ == Device::cpu) std::memset(t.raw(), 0, t.bytes());
  return t;
}

void Allocator::count_external(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  stats_.live_bytes += bytes;
  stats_.reserved_bytes += bytes;
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
}

AllocatorStats Allocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Allocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.live_bytes;
}

void Allocator::trim() {
  const std::lock_guard lock(mutex_);
  for (auto& [bytes, blocks] : cached_) {
    for (Buffer* block : blocks) {
      stats_.reserved_bytes -= int64_t(bytes);
      free_block(*block);
      std::erase_if(buffers_, [&](const auto& b) { return b.get() == block; });
    }
    blocks.clear();
  }
}

}  // namespace weft
