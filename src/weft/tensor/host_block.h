// HostBlock: bytes of the host's memory for copies to and from a device, pinned where the system pins so much.
#pragma once
#include <cstddef>
#include <utility>

namespace weft {

class HostBlock {
 public:
  enum class Pages : bool { any, pinned };

  HostBlock() = default;
  // Undefined contents. Without `pinned` pages, and where they are refused, memory as any other: is_pinned() tells.
  // Throws Error when there is none of that either.
  HostBlock(size_t bytes, Pages wanted);
  ~HostBlock();
  HostBlock(HostBlock&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_), is_pinned_(other.is_pinned_) {}
  HostBlock& operator=(HostBlock&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_), std::swap(is_pinned_, other.is_pinned_);
    return *this;
  }

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool is_pinned() const { return is_pinned_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  bool is_pinned_ = false;
};

}  // namespace weft
