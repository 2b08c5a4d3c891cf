// Safetensors from outside: the header, and what an entry says of its tensor.
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/formats/safetensors.h"

namespace weft {

void fuzz_safetensors(Bytes input) {
  MemoryFile memory(input);
  expect_errors_only([&] {
    const SafetensorsFile file("fuzz.safetensors", memory);
    uint64_t bytes = 0;
    for (const SafetensorsEntry& entry : file.entries()) {
      bytes += file.bytes(entry).size();
      if (&file.at(entry.name) != &entry) std::abort();
      expect_errors_only([&] {
        if (uint64_t(entry.shape().numel()) * size_of(entry.dtype()) != entry.size()) std::abort();
      });
    }
    if (bytes > input.size()) std::abort();
  });
}

}  // namespace weft
