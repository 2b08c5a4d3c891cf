// Device: where a tensor's bytes live; `meta` tensors have a shape but no bytes.
#pragma once
#include <cstdint>

namespace weft {

enum class Device : uint8_t { cpu, cuda, meta };

}  // namespace weft
