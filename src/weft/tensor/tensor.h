// Tensor: a handle to a shared buffer with dtype and shape; row-major and contiguous, always.
#pragma once
#include <cstring>

#include "weft/tensor/buffer.h"
#include "weft/tensor/dtype.h"
#include "weft/tensor/shape.h"

namespace weft {

// Copying a Tensor copies the handle. A default-made Tensor is empty and tests false.
class Tensor {
 public:
  Tensor() = default;
  Tensor(BufferRef buffer, DType dtype, Shape shape, size_t offset_bytes = 0)
      : buffer_(std::move(buffer)), offset_(offset_bytes), shape_(shape), dtype_(dtype) {}

  explicit operator bool() const { return bool(buffer_); }
  DType dtype() const { return dtype_; }
  Device device() const { return buffer_->device; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t numel() const { return shape_.numel(); }
  size_t bytes() const { return size_t(numel()) * size_of(dtype_); }

  // rows x cols view of the data: the last dim is the columns, everything before it the rows.
  int64_t cols() const { return shape_.rank() ? shape_[-1] : 1; }
  int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < shape_.rank(); ++i) n *= shape_[i];
    return n;
  }

  // Null on the meta device.
  void* raw() const { return buffer_->data ? buffer_->data + offset_ : nullptr; }
  // For the host.
  template <class T>
  T* data() const {
    check(dtype_of<T>() == dtype_, "tensor holds {}, read as {}", name_of(dtype_), name_of(dtype_of<T>()));
    check(device() != Device::cuda, "a tensor of {} on a device was read by the host", shape_);
    return static_cast<T*>(raw());
  }

  // The same bytes under another shape of the same size.
  Tensor reshape(Shape shape) const {
    check(shape.numel() == numel(), "cannot reshape {} to {}", shape_, shape);
    return {buffer_, dtype_, shape, offset_};
  }
  // Rows [begin, begin + count) of dim 0, sharing the bytes.
  Tensor slice_rows(int64_t begin, int64_t count) const {
    check(begin >= 0 && count >= 0 && begin + count <= dim(0), "rows {}+{} of {}", begin, count, shape_);
    Shape shape = shape_;
    shape[0] = count;
    const size_t row = dim(0) ? bytes() / size_t(dim(0)) : 0;
    return {buffer_, dtype_, shape, offset_ + size_t(begin) * row};
  }
  // `count` elements from `begin` as a tensor of one dim, or of `shape`.
  Tensor slice_flat(int64_t begin, Shape shape) const {
    check(begin >= 0 && begin + shape.numel() <= numel(), "{} from {} of {}", shape, begin, numel());
    return {buffer_, dtype_, shape, offset_ + size_t(begin) * size_of(dtype_)};
  }
  // Elements of any kind in the same memory, from one of its bytes on.
  Tensor view_bytes(size_t offset, DType dtype, Shape shape) const {
    check(offset + size_t(shape.numel()) * size_of(dtype) <= bytes(), "{} {} from byte {} of {}", name_of(dtype),
          shape, offset, bytes());
    return {buffer_, dtype, shape, offset_ + offset};
  }
  // True when no other handle refers to the buffer.
  bool is_unique() const { return buffer_->references.load(std::memory_order_acquire) == 1; }
  bool shares_buffer_with(const Tensor& other) const {
    return buffer_ && other.buffer_ && buffer_.operator->() == other.buffer_.operator->();
  }

 private:
  BufferRef buffer_;
  size_t offset_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
};

}  // namespace weft
