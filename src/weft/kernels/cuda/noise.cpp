// Noise: made on the host, and repeated on the device.
#include "weft/kernels/cuda/noise.h"

#include <bit>

#include "weft/base/philox.h"

namespace weft::cuda {
namespace {

template <class T>
void fill(Stream& stream, const Tensor& noise, uint64_t seed) {
  constexpr int64_t kPeriod = 65521;  // a prime: so many rows are not alike
  std::vector<T> values(size_t(std::min(noise.numel(), kPeriod)));
  // Scores of them are some above and some below zero, as those of a model at its first step are not.
  for (size_t i = 0; i < values.size(); ++i) values[i] = T(float(1.4 * philox_normal(1, seed, i)));
  auto* const to = static_cast<std::byte*>(noise.raw());
  const size_t bytes = values.size() * sizeof(T);
  if (bytes) stream.queue().copy_to_device(to, values.data(), bytes);
  for (size_t done = bytes; done < noise.bytes(); done += std::min(done, noise.bytes() - done))
    stream.queue().copy_on_device(to + done, to, std::min(done, noise.bytes() - done));
}

}  // namespace

Tensor noise_of(Stream& stream, Allocator& memory, DType type, const Shape& shape, std::string_view name) {
  const Tensor noise = memory.empty(type, shape);
  const uint64_t seed = name_hash(name);
  switch (type) {
    case DType::f32: fill<float>(stream, noise, seed); break;
    case DType::bf16: fill<BFloat16>(stream, noise, seed); break;
    case DType::f16: fill<Float16>(stream, noise, seed); break;
    default: throw Error("no noise of {}", name_of(type));
  }
  return noise;
}

}  // namespace weft::cuda
