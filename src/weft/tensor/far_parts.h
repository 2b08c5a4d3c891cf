// FarParts: far tensors in parts that are used in turn: two windows of near memory, one for the part in use, one from
// which the part before is stored and into which the next one is loaded.
#pragma once
#include <memory>
#include <vector>

#include "weft/tensor/allocator.h"
#include "weft/tensor/far_tensor.h"

namespace weft {

enum class Access : uint8_t { read, write };

// Belongs to one thread. In the steady state nothing is allocated but the windows, from the allocator.
class FarParts {
 public:
  FarParts(FarMemory& far, Allocator& near) : far_(far), near_(near) {}
  ~FarParts() { far_.wait_for_all(); }
  FarParts(const FarParts&) = delete;
  FarParts& operator=(const FarParts&) = delete;

  // Parts are numbered in the order in which they will be used.
  size_t add_part();
  // Of zeros; to be called while nothing is near.
  FarTensor& add(size_t part, DType dtype, Shape shape);

  // Between these the part's tensors are near, and what is written to them is kept; calls for a part may nest, and at
  // most two parts are entered at a time.
  void enter(size_t part, Access access);
  void leave(size_t part) noexcept;
  // Between these the windows stay, so that entering one part after the other does not wait.
  void keep_windows() { ++users_; }
  void let_go() noexcept;

  int64_t window_bytes() const;  // of each of the two

 private:
  struct Part {
    std::vector<std::unique_ptr<FarTensor>> tensors;
    size_t bytes = 0;  // near
  };
  struct Window {
    Tensor memory;
    Part* part = nullptr;
    int users = 0;
    bool is_written = false;
  };
  void load(Window& window, size_t part);
  void put_back(Window& window) noexcept;
  void store(Window& window) noexcept;
  Window* window_of(const Part& part);

  FarMemory& far_;
  Allocator& near_;
  std::vector<std::unique_ptr<Part>> parts_;
  Window windows_[2];
  int users_ = 0;
};

}  // namespace weft
