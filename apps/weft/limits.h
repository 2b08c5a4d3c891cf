// Limits: what bounds a rank's work, measured where it is done; and what the catalogue says of a device.
#pragma once
#include <memory>
#include <optional>

#include "rank_resources.h"
#include "weft/kernels/cpu/peak.h"

namespace weft::app {

// FLOP/s of one rank's large matrix products: of noise on a device, where constants, which take less power, would be
// faster. Ranks that share a device measure their share when they measure at the same time.
double peak_flops(Stream& stream, DType dtype);
// Bytes/s at which a rank reads its memory: of a device what a copy reads and writes.
double read_bandwidth(Stream& stream);

// The same, again and again beside what is compared with it: what a shared machine's memory gives changes.
class ReadLimit {
 public:
  explicit ReadLimit(Stream& stream);
  double measure();

 private:
  struct DeviceCopy;
  std::optional<cpu::ReadProbe> probe_;
  std::shared_ptr<DeviceCopy> copy_;
};

// Of a whole device of this machine by the catalogue; 0 where there is none that it knows.
double device_peak_flops(DType dtype);

}  // namespace weft::app
