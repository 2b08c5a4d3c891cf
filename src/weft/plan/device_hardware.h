// hardware_of_device: which entry of the catalogue a device of this machine is.
#pragma once
#include <optional>
#include <string_view>

#include "weft/plan/hardware.h"

namespace weft::plan {

// By the name that its driver gives ("NVIDIA H100 80GB HBM3"), and among entries of one name by memory. None: the
// catalogue does not know it.
std::optional<Hardware> hardware_of_device(std::string_view device_name, double memory_bytes);

}  // namespace weft::plan
