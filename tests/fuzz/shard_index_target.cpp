// The index of a model in shards from outside.
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/formats/safetensors_shards.h"

namespace weft {

void fuzz_shard_index(Bytes input) {
  MemoryFile memory(input);
  expect_errors_only([&] {
    for (const auto& [name, tensors] : read_shard_index("model.json", kSafetensorsNames, memory)) {
      const bool leaves_folder = name.find('/') != name.npos || name == ".." || name.find('\0') != name.npos;
      if (leaves_folder || tensors.empty()) std::abort();
    }
  });
}

}  // namespace weft
