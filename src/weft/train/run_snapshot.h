// RunSnapshot: a training run at one step, apart from the training that goes on: whole tensors, each on the one rank
// that writes it, and on rank 0 the small files.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/checkpoint/checkpoint_store.h"
#include "weft/tensor/allocator.h"

namespace weft {

struct RunSnapshot {
  struct File {
    std::string name;
    std::vector<NamedTensor> tensors;
  };
  int64_t step = 0;
  uint64_t all_bytes = 0;  // of the tensors of all ranks
  // Not counted with the training's memory. Before the tensors, which it must outlive.
  std::unique_ptr<Allocator> memory = std::make_unique<Allocator>();
  std::vector<File> tensor_files;                          // this rank's
  std::vector<std::pair<std::string, std::string>> texts;  // name and content
};

}  // namespace weft
