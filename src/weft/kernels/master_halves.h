// MasterHalves: an fp32 master in two halves, the weight in bf16 that products read and the 16 bits below it.
// Together they are the master, bit for bit, in 4 bytes an element in place of 6.
#pragma once
#include "weft/tensor/dtype.h"

namespace weft {

// `upper` is the master rounded to nearest, ties away from zero: where the highest bit of `lower` is set it is one
// more than the master's upper bits. Of a NaN it may be anything; the two halves are that NaN still.
struct MasterHalves {
  BFloat16 upper;
  uint16_t lower = 0;

  static MasterHalves of(float master) {
    const auto bits = std::bit_cast<uint32_t>(master);
    MasterHalves halves;
    halves.upper.bits = uint16_t((bits + 0x8000u) >> 16), halves.lower = uint16_t(bits);
    return halves;
  }
  float whole() const {
    return std::bit_cast<float>((uint32_t(upper.bits) << 16) + uint32_t(int32_t(int16_t(lower))));
  }
};

}  // namespace weft
