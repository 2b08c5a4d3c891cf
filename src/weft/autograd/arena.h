// Arena: memory for the nodes of a tape, taken in order and given back all at once; blocks are kept for the next
// tape.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "weft/base/error.h"

namespace weft {

class Arena {
 public:
  // Memory for `bytes` at `alignment` (a power of two, at most that of new); valid until reset().
  void* allocate(size_t bytes, size_t alignment) {
    check(bytes <= kBlockBytes, "a tape node of {} bytes does not fit in a block of {}", bytes, kBlockBytes);
    used_ = (used_ + alignment - 1) & ~(alignment - 1);
    if (block_ == blocks_.size() || used_ + bytes > kBlockBytes) {
      if (block_ < blocks_.size()) ++block_;
      if (block_ == blocks_.size()) blocks_.push_back(std::make_unique<std::byte[]>(kBlockBytes));
      used_ = 0;
    }
    void* memory = blocks_[block_].get() + used_;
    used_ += bytes;
    return memory;
  }
  void reset() { block_ = used_ = 0; }

 private:
  static constexpr size_t kBlockBytes = size_t(64) << 10;
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  size_t block_ = 0;
  size_t used_ = 0;
};

}  // namespace weft
