// FarTensor: a buffer whose bytes come and go.
#include "weft/tensor/far_tensor.h"

namespace weft {

FarTensor::FarTensor(FarMemory& far, Device device, DType dtype, Shape shape) : far_(far) {
  buffer_.bytes = size_t(shape.numel()) * size_of(dtype);
  buffer_.device = device;
  buffer_.owner = this;
  handle_ = Tensor(BufferRef(&buffer_), dtype, shape);
  slot_ = far_.reserve(buffer_.bytes);
}

void FarTensor::start_load(Tensor near) {
  check(is_away(), "a far tensor is brought near twice");
  near_ = std::move(near);
  load_ = far_.start_load(slot_, near_);
}

void FarTensor::wait() {
  far_.wait(load_);
  buffer_.data = near_.device() == Device::meta ? nullptr : static_cast<std::byte*>(near_.raw());
}

void FarTensor::start_store() { far_.start_store(slot_, near_); }

void FarTensor::drop() {
  buffer_.data = nullptr;
  near_ = {};
}

}  // namespace weft
