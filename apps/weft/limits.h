// Limits: what bounds a rank's work: measured on the CPU, of the catalogue on a device.
#pragma once
#include "rank_resources.h"

namespace weft::app {

// FLOP/s of matrix products of one of `ranks` ranks; 0: the catalogue does not know this machine's device.
double peak_flops(Stream& stream, DType dtype, int ranks = 1);
// Bytes/s at which it reads its memory; 0 likewise.
double read_bandwidth(Stream& stream, int ranks = 1);

// Of a whole device of this machine; 0 where there is none that the catalogue knows.
double device_peak_flops(DType dtype);

}  // namespace weft::app
