// OpBytes: what a piece of work is, as bytes that are equal exactly where the work is the same.
#pragma once
#include <string>
#include <type_traits>

namespace weft {

class OpBytes {
 public:
  void clear() { bytes_.clear(); }

  // What lies between members of a struct is left out of account.
  template <class T>
  OpBytes& add(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    __builtin_clear_padding(&value);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace weft
