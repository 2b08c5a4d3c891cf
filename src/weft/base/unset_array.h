// UnsetArray: numbers that have no values until they are given some. Memory that nobody writes is then none that the
// machine has to find, as of the millions of tokens that a plan moves without data.
#pragma once
#include <cstddef>
#include <memory>

namespace weft {

template <class T>
class UnsetArray {
 public:
  void resize(size_t size) {  // what was there is lost
    if (size > room_) numbers_ = std::make_unique_for_overwrite<T[]>(room_ = size);
    size_ = size;
  }
  size_t size() const { return size_; }
  T* data() { return numbers_.get(); }
  const T* data() const { return numbers_.get(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return numbers_[i]; }
  const T& operator[](size_t i) const { return numbers_[i]; }

 private:
  std::unique_ptr<T[]> numbers_;
  size_t size_ = 0, room_ = 0;
};

}  // namespace weft
