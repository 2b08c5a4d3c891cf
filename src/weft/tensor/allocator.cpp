// Allocator: size classes, free lists and accounting.
#include "weft/tensor/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "weft/tensor/cuda/cuda_device.h"

namespace weft {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t(2) << 20;

size_t round_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// Eight sizes per power of two, at least 256 bytes; large blocks, of which there are few sizes, are cut finer.
size_t round_up_to_class(size_t bytes) {
  constexpr size_t kSmallest = 256;
  if (bytes <= kSmallest) return kSmallest;
  constexpr size_t kLarge = size_t(64) << 10;
  return round_up(bytes, std::bit_floor(bytes - 1) / (bytes < kLarge ? 8 : 128));
}

std::byte* system_allocate(Device device, size_t bytes) {
  if (device == Device::cuda) return allocate_on_cuda(bytes);
  const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  void* data = std::aligned_alloc(alignment, round_up(bytes, alignment));
  if (data && alignment == kHugePage) madvise(data, bytes, MADV_HUGEPAGE);  // a refusal costs speed only
  return static_cast<std::byte*>(data);
}

// Of a device's free blocks the one that lies lowest comes first, so that a step that asks for what the step before
// it asked for gets the same addresses, and may be queued as the same graph. On the host it is the one that was used
// last, which is in cache.
constexpr auto kLowestLast = [](const Buffer* a, const Buffer* b) { return a->data > b->data; };

}  // namespace

Allocator::Allocator(Device device, int64_t limit_bytes) : device_(device), limit_bytes_(limit_bytes) {}

Allocator::~Allocator() {
  for (const auto& buffer : buffers_) free_block(*buffer);
}

void Allocator::free_block(Buffer& buffer) noexcept {
  device_ == Device::cuda ? free_on_cuda(buffer.data) : std::free(buffer.data);
  buffer.data = nullptr;
}

BufferRef Allocator::allocate(size_t bytes) {
  const size_t rounded = round_up_to_class(bytes);
  const std::lock_guard lock(mutex_);
  SizeClass& size_class = classes_[rounded];
  if (size_class.free.empty()) add_block(bytes, rounded, size_class);
  if (device_ == Device::cuda) std::ranges::pop_heap(size_class.free, kLowestLast);
  Buffer* buffer = size_class.free.back();
  size_class.free.pop_back();
  stats_.live_bytes += int64_t(rounded);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  if (observer_) observer_->allocated(*buffer);
  return BufferRef(buffer);
}

void Allocator::add_block(size_t bytes, size_t rounded, SizeClass& size_class) {
  if (int64_t(rounded) > limit_bytes_ - stats_.reserved_bytes) free_cached();
  if (int64_t(rounded) > limit_bytes_ - stats_.reserved_bytes)
    throw Error(
        "out of memory: {} bytes were asked for, {} are in use and the limit is {}; use a smaller "
        "micro_batch, recomputation, or more ranks",
        bytes, stats_.live_bytes, limit_bytes_);
  size_class.free.reserve(size_class.num_blocks + 1);  // so that release() never allocates
  Buffer& buffer = *buffers_.emplace_back(std::make_unique<Buffer>());
  buffer.bytes = rounded;
  buffer.device = device_;
  buffer.owner = this;
  if (device_ != Device::meta) {
    buffer.data = system_allocate(device_, rounded);
    if (!buffer.data && device_ == Device::cuda) free_cached(), buffer.data = system_allocate(device_, rounded);
    if (!buffer.data) {
      buffers_.pop_back();
      throw Error(
          "out of memory: the {} refused {} bytes while {} are in use; use a smaller micro_batch, "
          "recomputation, or more ranks",
          device_ == Device::cuda ? "device" : "system", bytes, stats_.live_bytes);
    }
  }
  ++size_class.num_blocks;
  put_back(buffer, size_class);
  stats_.reserved_bytes += int64_t(rounded);
  ++stats_.system_calls;
}

void Allocator::release(Buffer& buffer) noexcept {
  const std::lock_guard lock(mutex_);
  stats_.live_bytes -= int64_t(buffer.bytes);
  if (observer_) observer_->released(buffer);
  put_back(buffer, classes_.find(buffer.bytes)->second);
}

void Allocator::put_back(Buffer& buffer, SizeClass& size_class) noexcept {
  size_class.free.push_back(&buffer);
  if (device_ == Device::cuda) std::ranges::push_heap(size_class.free, kLowestLast);
}

Tensor Allocator::empty(DType dtype, Shape shape) {
  return {allocate(size_t(shape.numel()) * size_of(dtype)), dtype, shape};
}

Tensor Allocator::zeros(DType dtype, Shape shape) {
  Tensor t = empty(dtype, shape);
  if (device_ == Device::cpu) std::memset(t.raw(), 0, t.bytes());
  if (device_ == Device::cuda) clear_on_cuda(static_cast<std::byte*>(t.raw()), t.bytes());
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
  free_cached();
}

void Allocator::free_cached() {
  for (auto& [bytes, size_class] : classes_) {
    stats_.reserved_bytes -= int64_t(bytes * size_class.free.size());
    size_class.num_blocks -= size_class.free.size();
    for (Buffer* block : size_class.free) {
      free_block(*block);
      block->owner = nullptr;
    }
    size_class.free.clear();
  }
  std::erase_if(buffers_, [](const auto& buffer) { return !buffer->owner; });
}

}  // namespace weft
