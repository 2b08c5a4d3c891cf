// PyTorch checkpoints from outside: the archive, the pickle, and every tensor.
#include <cstdlib>

#include "fuzz/memory_file.h"
#include "fuzz/targets.h"
#include "weft/formats/torch_file.h"

namespace weft {

void fuzz_torch(Bytes input) {
  MemoryFile memory(input);
  expect_errors_only([&] {
    const TorchFile file("fuzz.bin", memory);
    for (const TorchEntry& entry : file.entries()) {
      if (entry.size() > input.size()) std::abort();
      std::vector<std::byte> bytes(entry.size());
      file.read(entry, bytes);
      expect_errors_only([&] {
        if (uint64_t(entry.shape().numel()) != entry.numel()) std::abort();
      });
    }
  });
}

}  // namespace weft
