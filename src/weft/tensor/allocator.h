// Allocator: the memory of one rank; freed blocks are kept for the next request of their size, and peaks are counted.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "weft/tensor/buffer.h"
#include "weft/tensor/tensor.h"

namespace weft {

struct AllocatorStats {
  int64_t live_bytes = 0;      // held by tensors now
  int64_t peak_bytes = 0;      // the most that was live at once since the last reset_peak
  int64_t reserved_bytes = 0;  // taken from the system, live or cached
  int64_t system_calls = 0;    // how often the system was asked: constant in a steady state
};

// Told about every block that becomes live and every one that no longer is, while the allocator is locked: it must
// not call back.
class AllocationObserver {
 public:
  virtual ~AllocationObserver() = default;
  virtual void allocated(const Buffer& buffer) noexcept = 0;
  virtual void released(const Buffer& buffer) noexcept = 0;
};

// Thread-safe, since a communication thread may drop the last reference. Blocks are aligned to 64 bytes. Sizes are
// rounded up to one of eight steps per power of two, so at most 12.5% of a block is unused, and from 64 KiB on to one
// of 128, so at most 0.8%. The limit holds for live
// and cached blocks together; cached ones go back to the system before it is hit. An allocator must outlive its
// tensors. Throws Error naming the bytes asked for and held when the system or the limit refuses.
class Allocator final : public BufferOwner {
 public:
  explicit Allocator(Device device = Device::cpu, int64_t limit_bytes = INT64_MAX);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  BufferRef allocate(size_t bytes);
  Tensor empty(DType dtype, Shape shape);  // uninitialised
  Tensor zeros(DType dtype, Shape shape);

  // Counts memory that was taken elsewhere, such as windows shared by processes, as live; negative when it is freed.
  void count_external(int64_t bytes);

  Device device() const { return device_; }
  AllocatorStats stats() const;
  void reset_peak();
  void set_observer(AllocationObserver* observer) { observer_ = observer; }  // null: nobody; it outlives its use
  void trim();                                                               // gives cached blocks back to the system

 private:
  void release(Buffer& buffer) noexcept override;
  void free_block(Buffer& buffer) noexcept;

  // The blocks of one rounded size.
  struct SizeClass {
    std::vector<Buffer*> free;
    size_t num_blocks = 0;  // free or live
  };
  void add_block(size_t bytes, size_t rounded, SizeClass& size_class);
  void put_back(Buffer& buffer, SizeClass& size_class) noexcept;
  void free_cached();

  Device device_;
  int64_t limit_bytes_;
  AllocationObserver* observer_ = nullptr;
  mutable std::mutex mutex_;
  AllocatorStats stats_;
  std::map<size_t, SizeClass> classes_;           // by rounded size
  std::vector<std::unique_ptr<Buffer>> buffers_;  // every block, free or live
};

}  // namespace weft
