// OpBytes: what a piece of work is, as bytes that are equal exactly where the work is the same.
#pragma once
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

namespace weft {

class OpBytes {
 public:
  void clear() { bytes_.clear(); }

  // What lies between members of a struct is left out of account.
  template <class T>
  OpBytes& add(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    __builtin_clear_padding(&value);
    const auto* const from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(T));
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace weft
