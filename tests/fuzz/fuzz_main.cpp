// What libFuzzer calls; WEFT_FUZZ_TARGET is the function of targets.h that this program is for.
#include <cstddef>
#include <cstdint>

#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::WEFT_FUZZ_TARGET(std::as_bytes(std::span(data, size)));
  return 0;
}
