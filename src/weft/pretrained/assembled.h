// Assembled tensors: what a file of a family holds, put together from a model's parameters.
#pragma once
#include <string>
#include <vector>

#include "weft/pretrained/model_source.h"

namespace weft {

struct AssembledTensor {
  struct Part {
    const ParamNames* names;
    size_t index;  // of the stored tensors that the parameter has a share in
  };
  std::string name;
  std::vector<int64_t> dims;
  std::vector<Part> parts;
  int64_t numel() const;
};

// In the order of use. `names` outlives the result.
std::vector<AssembledTensor> assemble(const std::vector<ParamNames>& names);

// The elements of one tensor, row by row.
void read_assembled(const ModelSource& source, const AssembledTensor& tensor, std::span<float> out);

}  // namespace weft
