// FarTensor: a tensor whose bytes live in far memory. Its handle, and slices of it, stay as they are; there is
// something behind them while it is near.
#pragma once
#include "weft/tensor/far_memory.h"

namespace weft {

class FarTensor final : private BufferOwner {
 public:
  // Of zeros. The far memory outlives this, and this its handles.
  FarTensor(FarMemory& far, Device device, DType dtype, Shape shape);
  FarTensor(const FarTensor&) = delete;
  FarTensor& operator=(const FarTensor&) = delete;

  const Tensor& handle() const { return handle_; }
  size_t bytes() const { return handle_.bytes(); }
  bool is_away() const { return !near_; }  // neither near nor on its way

  // Starts loading into `near`, u8 memory of as many bytes, which is kept until drop().
  void start_load(Tensor near);
  void wait();         // then it is near
  void start_store();  // of what is near
  void drop();         // what is near now; a store that is under way needs its memory still

 private:
  void release(Buffer&) noexcept override {}

  FarMemory& far_;
  FarMemory::Slot slot_;
  Buffer buffer_;
  Tensor handle_, near_;
  FarMemory::Ticket load_ = 0;
};

}  // namespace weft
