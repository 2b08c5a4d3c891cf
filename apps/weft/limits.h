// Limits: what bounds a rank's work: measured on the CPU, of the catalogue on a device.
#pragma once
#include <optional>

#include "rank_resources.h"
#include "weft/kernels/cpu/peak.h"

namespace weft::app {

// FLOP/s of matrix products of one of `ranks` ranks; 0: the catalogue does not know this machine's device.
double peak_flops(Stream& stream, DType dtype, int ranks = 1);
// Bytes/s at which it reads its memory; 0 likewise.
double read_bandwidth(Stream& stream, int ranks = 1);

// The same, again and again beside what is compared with it: what a shared machine's memory gives changes.
class ReadLimit {
 public:
  explicit ReadLimit(Stream& stream);
  double measure() { return probe_ ? probe_->pass() : of_device_; }

 private:
  std::optional<cpu::ReadProbe> probe_;
  double of_device_ = 0;
};

// Of a whole device of this machine; 0 where there is none that the catalogue knows.
double device_peak_flops(DType dtype);

}  // namespace weft::app
