// Stream: copies between devices.
#include "weft/tensor/stream.h"

#include "weft/tensor/cuda/cuda_device.h"

namespace weft {

std::unique_ptr<DeviceQueue> Stream::make_queue(Device device) {
  return device == Device::cuda ? make_cuda_queue() : nullptr;
}

void Stream::copy(const Tensor& to, const Tensor& from) {
  check(to.bytes() == from.bytes(), "{} bytes cannot be copied to {}", from.bytes(), to.bytes());
  if (to.bytes() == 0 || to.device() == Device::meta || from.device() == Device::meta) return;
  const bool is_from_host = from.device() == Device::cpu, is_to_host = to.device() == Device::cpu;
  if (is_from_host && is_to_host)
    std::memcpy(to.raw(), from.raw(), to.bytes());
  else if (is_from_host)
    queue().copy_to_device(to.raw(), from.raw(), to.bytes());
  else if (is_to_host)
    queue().copy_to_host(to.raw(), from.raw(), to.bytes());
  else
    queue().copy_on_device(to.raw(), from.raw(), to.bytes());
}

void Stream::copy_rows(RowsAt to, RowsAt from, int64_t rows, size_t row_bytes) {
  if (rows == 0 || row_bytes == 0 || to.tensor.device() == Device::meta) return;
  const auto end_of = [&](const RowsAt& at) { return at.offset + size_t(rows - 1) * at.pitch + row_bytes; };
  check(end_of(to) <= to.tensor.bytes() && end_of(from) <= from.tensor.bytes(),
        "{} rows of {} bytes do not lie in {} and {}", rows, row_bytes, to.tensor.shape(), from.tensor.shape());
  auto* const out = static_cast<std::byte*>(to.tensor.raw()) + to.offset;
  const auto* const in = static_cast<const std::byte*>(from.tensor.raw()) + from.offset;
  if (queue_) return queue_->copy_rows_on_device(out, to.pitch, in, from.pitch, row_bytes, size_t(rows));
  constexpr size_t kBytesOfATask = 256 << 10;
  const int64_t grain = std::max<int64_t>(int64_t(kBytesOfATask / row_bytes), 1);
  team_.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row)
      std::memcpy(out + size_t(row) * to.pitch, in + size_t(row) * from.pitch, row_bytes);
  });
}

}  // namespace weft
